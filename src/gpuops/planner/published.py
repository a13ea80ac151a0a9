"""Runs in a table, as published ones or one's own: each row's model, cluster, job and layout, and what it measured.

Columns: ``layers, hidden, heads, ffn, vocab, seq_len, gpu, n_gpus, tp, pp, dp, mbs,
gbs, step_time_s`` or ``achieved_tflops_per_gpu``, and more. Where a row leaves open what its program did, the time of
publication decides, seen from the number format: fp16 on Volta and Ampere is from before flash attention.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gpuops.errors import LayoutError
from gpuops.planner.candidates import COLUMNS, RECOMPUTE, Candidates
from gpuops.planner.gpus import Precision, gpu_named
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.model import TransformerSpec
from gpuops.planner.model_config import read_config
from gpuops.planner.training import Framework, TrainingSetup

Row = Mapping[str, str]
NEEDED = ("gpu", "seq_len", "n_gpus", "tp", "pp", "dp", "gbs")
_LARGEST = 1e15
"""A number above this is a slip; the largest model has some 10¹² parameters."""
_UNKNOWN_MBS = (1, 2, 4, 8)
_UNKNOWN_VPP = (1, 2, 3, 6)
"""What is tried if a row does not say: the fastest counts, for a run is published with the best its authors found."""


@dataclass(frozen=True)
class PublishedRun:
    """One row: what ran, and the ``seconds`` a step took. ``candidates`` are the layouts that the row may mean."""

    id: str
    source: str
    model: TransformerSpec
    cluster: ClusterSpec
    training: TrainingSetup
    candidates: Candidates
    seconds: float
    samples: int
    peak_gb: float | None = None
    ran_out: bool = False
    number_format: str = ""
    recompute_given: bool = True
    publisher: str = ""

    @property
    def model_flops(self) -> float:
        """FLOPs of a step, counted as ``model``."""
        return self.model.flops_per_token(self.training.sequence) * self.training.sequence * self.samples

    @property
    def fleet(self) -> str:
        """Name of the hardware and program that the run shares with others of its source."""
        return f"{self.source}, {self.cluster.gpu.name}"

    @property
    def question(self) -> tuple[object, ...]:
        """What runs have in common between which only the layout changed; batches may differ by a few percent."""
        batch = round(4 * math.log2(self.samples))
        training = replace(self.training, global_batch=1, framework="megatron")
        return self.source, self.number_format, self.model, training, self.cluster, batch


class Skipped(NamedTuple):
    """A row that cannot be scored, and why."""

    id: str
    reason: str


class PublishedTable(NamedTuple):
    """The runs of a table, those that ran out of memory or whose time is unknown included, and the rows left out.

    ``unknown_columns`` are those that no table of runs has, in their order.
    """

    runs: list[PublishedRun]
    skipped: list[Skipped]
    unknown_columns: tuple[str, ...] = ()


def read_table(text: str, name: str = "the table") -> PublishedTable:
    """Read a table of runs in CSV; raise `LayoutError` if it lacks a needed column, or has a word that means nothing.

    A number that cannot be one leaves out its row.
    """
    runs, skipped, columns = [], [], dict[str, str]()
    for number, row in _rows(text, name):
        cells = {key: value or "" for key, value in row.items() if isinstance(key, str) and not isinstance(value, list)}
        columns |= cells
        _check_words(cells, f"{name}:{number}")
        try:
            runs.append(_run({"id": f"line {number}", **cells}))
        except LayoutError as error:
            skipped.append(Skipped(cells.get("id") or f"line {number}", str(error)))
    return PublishedTable(runs, skipped, tuple(column for column in columns if column not in _COLUMNS))


_WORDS: Mapping[str, tuple[str, str]] = {
    "precision": (r"bf16|fp16|(mx)?fp8|(nv|mx)?fp4", "bf16, fp16, fp8, mxfp8, fp4 or nvfp4, with or without a -suffix"),
    "recompute": ("|".join(RECOMPUTE), ", ".join(RECOMPUTE)),
    "zero_stage": ("[0-3]", "0, 1, 2 or 3"),
    "oom": ("[01]", "0 or 1"),
}
"""Words that columns may have, as a pattern and in words; an empty cell says nothing."""
_COLUMNS = frozenset(
    "id source publisher model params_b layers hidden heads kv_heads ffn vocab seq_len gpu gpu_mem_gb peak_tflops "
    "precision n_gpus gpus_per_node intra_link inter_link_gbps_per_node tp pp dp cp ep vpp zero_stage mbs gbs "
    "recompute achieved_tflops_per_gpu tflops_kind mfu_or_hfu step_time_s tokens_per_s_per_gpu peak_mem_gb oom "
    "notes".split()
)
"""Columns of a table of runs; a few, such as ``mfu_or_hfu``, only document a row."""


def _check_words(row: Row, where: str) -> None:
    for column, (pattern, expected) in _WORDS.items():
        suffix = "(-[a-z0-9]+)?" if column == "precision" else ""
        word = row.get(column, "")
        if word and not re.fullmatch(f"({pattern}){suffix}", word):
            raise LayoutError(f'{where}: {column} "{word[:20]}" is not one of {expected}; correct it or leave it empty')


def _rows(text: str, name: str) -> list[tuple[int, dict[str, Any]]]:
    """Return the rows of a table by column, each with its line; raise `LayoutError` for what is not such a table."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        missing = [column for column in NEEDED if column not in (reader.fieldnames or ())]
        rows = [] if missing else [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise LayoutError(f"{name}: not CSV after line {reader.line_num}: {error}") from error
    if missing:
        raise LayoutError(
            f"{name}: no column {', '.join(missing)}; the first line of a table of runs names its columns"
        )
    return rows


def _run(row: Row) -> PublishedRun:
    notes = row.get("notes", "")
    if "run-to-run" in notes:
        raise LayoutError("its source warns that runs differ by 40 %")
    if "LoRA" in notes:
        raise LayoutError("LoRA computes no gradients of the weights")
    if missing := [column for column in NEEDED if not row.get(column)]:
        raise LayoutError(f"not given: {', '.join(missing)}")
    _check_degrees(row)
    model = _model(row)
    training = _training(row)
    cluster = _cluster(row)
    candidates = _candidates(row, training)
    run = PublishedRun(
        row["id"] or "?",
        row.get("source", ""),
        model,
        cluster,
        training,
        candidates,
        _number(row, "step_time_s"),
        training.global_batch,
        _number(row, "peak_mem_gb") or None,
        row.get("oom") == "1",
        row.get("precision", ""),
        bool(row.get("recompute")),
        _publisher(row),
    )
    run = replace(run, seconds=run.seconds or _seconds_from_tflops(row, run))
    if _is_typo(run):
        raise LayoutError("slower for each sample than larger batches of the same run: a slip in its source")
    return run


_PUBLISHERS = (("NVIDIA", "nvidia|NeMo|Megatron-|MT-NLG|Narayanan|Korthikanti"), ("MosaicML", "mosaicml"))
"""Those of several sources, such as papers and release notes of one team, whose runs have programs in common."""


def _publisher(row: Row) -> str:
    source = row.get("source", "")
    found = (name for name, pattern in _PUBLISHERS if re.search(pattern, source))
    return row.get("publisher") or next(found, source)


def _is_typo(run: PublishedRun) -> bool:
    """Return True for the one row of BigScience whose batch of 1568 is said to take as long as one of 2048."""
    return run.samples == 1568 and abs(run.seconds - 113.01) < 1e-6


def _check_degrees(row: Row) -> None:
    ranks = math.prod(_count(row, degree) for degree in ("tp", "pp", "dp", "cp"))
    if ranks != _count(row, "n_gpus"):
        raise LayoutError(f"tp·pp·dp·cp is {ranks}, and n_gpus {row['n_gpus']}")
    each = _count(row, "dp") * _count(row, "mbs")
    if _count(row, "gbs") % each:
        raise LayoutError(f"a global batch of {row['gbs']} is not divisible by mbs·dp={each}")
    if row.get("heads") and _count(row, "heads") % _count(row, "tp"):
        raise LayoutError(f"{row['heads']} heads are not divisible by tp={row['tp']}")


def _number(row: Row, column: str, default: float = 0.0) -> float:
    text = row.get(column) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= _LARGEST:
        raise LayoutError(f'{column}: "{text[:20]}" is not a number from 0 to {_LARGEST:g}')
    return number


def _count(row: Row, column: str, default: int = 1, least: int = 1) -> int:
    number = _number(row, column, default)
    if number < least or number != int(number):
        raise LayoutError(f'{column}: "{row[column][:20]}" is not a whole number from {least} up')
    return int(number)


def _model(row: Row) -> TransformerSpec:
    name = row.get("model", "")
    known = next((config for pattern, config in _KNOWN.items() if re.search(pattern, name, re.IGNORECASE)), None)
    if known and not row.get("hidden"):
        return read_config(known, name)
    if missing := [column for column in ("layers", "hidden", "heads", "ffn") if not row.get(column)]:
        raise LayoutError(f"the sizes of {name or 'the model'} are not given: {', '.join(missing)}")
    hidden, heads = _count(row, "hidden"), _count(row, "heads")
    gated = bool(re.search("llama|qwen|mistral", name, re.IGNORECASE))
    return TransformerSpec(
        name,
        _count(row, "layers"),
        hidden,
        heads,
        _count(row, "kv_heads", heads),
        _count(row, "ffn"),
        _count(row, "vocab", 51200),
        _count(row, "seq_len"),
        head_dim=hidden // heads,
        gated=gated,
        tied=not gated,
    )


_FRAMEWORKS: tuple[tuple[str, Framework], ...] = (
    ("bigscience|MT-NLG", "deepspeed"),
    ("torchtitan|nanotron|llm-foundry|Automodel", "fsdp"),
    ("Megatron-Bridge|docs.nvidia.com", "megatron"),
)
"""Frameworks by the names of sources. What is built on PyTorch alone sends and attends as with FSDP, whatever it
shards; what is built on Megatron Core has the attention of Transformer Engine with ZeRO 3, too.
"""
_SPLITS_BY_STAGES = "torchtitan"
"""Its default (``pipeline_parallel_microbatches``) is as many micro-batches as the pipeline has ranks."""


def _framework(row: Row) -> Framework:
    source = row.get("source", "")
    if known := next((framework for pattern, framework in _FRAMEWORKS if re.search(pattern, source)), None):
        return known
    if _count(row, "zero_stage", 0, least=0) == 3:
        return "deepspeed" if "Narayanan" in source else "fsdp"
    return "megatron"


def _training(row: Row) -> TrainingSetup:
    source, precision = row.get("source", ""), row.get("precision", "bf16")
    framework = _framework(row)
    kind: Precision = "bf16"
    kind = "fp4" if "fp4" in precision else "fp8" if "fp8" in precision else "fp16" if "fp16" in precision else kind
    old = kind == "fp16" or "MT-NLG" in source
    return TrainingSetup(
        _count(row, "seq_len"),
        _count(row, "gbs"),
        kind,
        framework=framework,
        fp32_gradients=precision != "bf16-pure",
        flash_attention=not old,
        tp_overlap=not old and framework != "deepspeed",
        dp_overlap=not old,
        dropout=old,
    )


_LINKS = {  # GB/s of an all-reduce over NVLink, GPUs of an NVLink domain, Gbit/s of a NIC for each GPU
    "V100": (120.0, 16, 50),
    "A100": (230.0, 8, 200),
    "H100": (365.0, 8, 400),
    "H200": (365.0, 8, 400),
    "GB200": (650.0, 72, 400),
    "GB300": (650.0, 72, 800),
    "B200": (680.0, 8, 400),
    "B300": (680.0, 8, 800),
}


def _cluster(row: Row) -> ClusterSpec:
    gpu = gpu_named(row["gpu"])
    links = next((value for name, value in _LINKS.items() if gpu.name.startswith(name)), None)
    if links is None:
        raise LayoutError(f"no links are known of machines with {gpu.name}")
    per_node = _count(row, "gpus_per_node", 8)
    rate = _number(row, "inter_link_gbps_per_node") / per_node or links[2]
    gpus = _count(row, "n_gpus")
    return ClusterSpec(row["gpu"], gpu, gpus, per_node, max(links[1], per_node), links[0], 0.9 * rate / 8)


def _candidates(row: Row, training: TrainingSetup) -> Candidates:
    tp, dp, pp = _count(row, "tp"), _count(row, "dp"), _count(row, "pp")
    per_replica = -(-training.global_batch // dp)
    sizes = [_count(row, "mbs")] if row.get("mbs") else _unknown_sizes(row, per_replica, pp)
    stages = [_count(row, "vpp")] if row.get("vpp") else _UNKNOWN_VPP if pp > 1 else (1,)
    choices = [(mbs, vpp) for mbs in sizes for vpp in stages]
    split = training.precision != "fp16" or "sequence parallel on" in row.get("notes", "")
    recompute = row.get("recompute") or "none"
    return Candidates.product(
        dp=dp,
        pp=pp,
        tp=tp,
        cp=_count(row, "cp"),
        ep=_count(row, "ep"),
        zero=_count(row, "zero_stage", 0, least=0),
        mbs=[mbs for mbs, _ in choices],
        chunks=[max(1, -(-per_replica // mbs)) for mbs, _ in choices],
        vpp=[vpp for _, vpp in choices],
        recompute=RECOMPUTE.index(recompute) if recompute in RECOMPUTE else 0,
        sequence_parallel=split and tp > 1,
    )


def _unknown_sizes(row: Row, per_replica: int, stages: int) -> list[int]:
    """Return the sizes that a micro-batch may have had: that of its program's default, or any usual one."""
    if stages > 1 and _SPLITS_BY_STAGES in row.get("source", ""):
        return [max(1, per_replica // stages)]
    return [size for size in _UNKNOWN_MBS if per_replica % size == 0]


def _seconds_from_tflops(row: Row, run: PublishedRun) -> float:
    """Return the seconds that a row's TFLOP/s stand for, counted as its ``tflops_kind`` says; 0 if it has none."""
    tflops, kind = _number(row, "achieved_tflops_per_gpu"), row.get("tflops_kind", "")
    if not tflops:
        return 0.0
    counted = "hardware" if kind.startswith("hardware") else "model"
    per_token = run.model.flops_per_token(run.training.sequence, counted)  # type: ignore[arg-type]
    if "8*P" in kind:
        per_token = 8.0 * run.model.total_parameters()
    return per_token * run.training.tokens / (tflops * 1e12 * run.cluster.gpus)


def in_groups(runs: Iterable[PublishedRun]) -> list[list[list[PublishedRun]]]:
    """Return, for each question that several layouts answer, the runs of each of these layouts."""
    groups: dict[tuple[object, ...], dict[bytes, list[PublishedRun]]] = {}
    for run in runs:
        layouts = groups.setdefault(run.question, {})
        layouts.setdefault(_identity(run.candidates), []).append(run)
    return [list(layouts.values()) for layouts in groups.values() if len(layouts) > 1]


def _identity(candidates: Candidates) -> bytes:
    """Return what layouts differ in; the number of micro-batches follows from the batch."""
    return b"".join(getattr(candidates, name).tobytes() for name in COLUMNS if name != "chunks")


def _moe(kind: str, sizes: tuple[int, ...], **other: Any) -> dict[str, Any]:
    first = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    names = (*first, "intermediate_size", "vocab_size", "moe_intermediate_size", "num_experts_per_tok")
    return {"model_type": kind, **dict(zip(names, sizes, strict=True)), **other}


_LATENT = {"q_lora_rank": 1536, "kv_lora_rank": 512, "n_shared_experts": 1}
_KNOWN: Mapping[str, Mapping[str, Any]] = {
    "DeepSeek.?V3": _moe(
        "deepseek_v3",
        (61, 7168, 128, 128, 18432, 129280, 2048, 8),
        n_routed_experts=256,
        first_k_dense_replace=3,
        **_LATENT,
    ),
    "Kimi.?K2": _moe(
        "kimi_k2", (61, 7168, 64, 64, 18432, 163840, 2048, 8), n_routed_experts=384, first_k_dense_replace=1, **_LATENT
    ),
    "GPT.?OSS.?120B": _moe("gpt_oss", (36, 2880, 64, 8, 2880, 201088, 2880, 4), head_dim=64, num_local_experts=128),
    "Qwen3.235B": _moe("qwen3_moe", (94, 4096, 64, 4, 12288, 151936, 1536, 8), head_dim=128, num_experts=128),
    "Qwen3.30B": _moe("qwen3_moe", (48, 2048, 32, 4, 6144, 151936, 768, 8), head_dim=128, num_experts=128),
}
"""Configurations of mixtures of experts that tables name without their sizes, from their makers' ``config.json``."""
