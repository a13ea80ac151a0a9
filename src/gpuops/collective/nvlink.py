"""The gain from NVLink on a node: an all-reduce and a training run on its GPUs, with and without NVLink.

Hugging Face's guide measured the training on 2 TITAN RTX (huggingface/transformers, performance guide;
stas00/ml-engineering, network/benchmarks/results/disable-nvlink.md): GPT-2, 200 steps, 4 samples per GPU took 101 s
with NVLink and 131 s without, so NVLink saved 23 %.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from gpuops.collective.measurement import Measurement, excluded_document
from gpuops.collective.pool import Pool
from gpuops.collective.session import Snapshot
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.rounds import RankGroup, Round, Variant
from gpuops.probing import Unknown
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.secret import redact
from gpuops.shell import Command, Completed

RowName = Literal["dp", "ddp", "ddp-no-p2p"]
ROWS: dict[RowName, str] = {"dp": "DP", "ddp": "DDP", "ddp-no-p2p": "DDP without NVLink"}
_VARIANTS: tuple[Variant, ...] = ("", "no-p2p")


@dataclass(frozen=True)
class NvlinkGain:
    """One node's all-reduce bus bandwidth in GB/s with NVLink and without (``NCCL_P2P_DISABLE=1``)."""

    node: str
    with_gb_per_s: float
    without_gb_per_s: float

    @property
    def time_saved(self) -> float:
        """The fraction of the time without NVLink that it saves."""
        return 1 - self.without_gb_per_s / self.with_gb_per_s


@dataclass(frozen=True)
class Model:
    """The model to train, by default of GPT-2's size with the guide's batch. ``processes`` is used without GPUs."""

    steps: int = 200
    batch: int = 4
    layers: int = 12
    width: int = 768
    words: int = 1024
    processes: int = 2


@dataclass(frozen=True)
class Training:
    """One row: seconds of all steps, samples per second, and whether all ranks end with the same weights."""

    row: RowName
    seconds: float
    samples_per_second: float
    gpus: int
    weights: int
    alike: bool
    torch: str


@dataclass(frozen=True)
class NvlinkComparison(Result):
    """The gain from NVLink on each node, `Unknown` if it was not measured; ``training`` holds the rows of each node."""

    SCHEMA: ClassVar[str] = "gpuops.nvlink/1"

    measurement: Measurement
    gains: Mapping[str, NvlinkGain | Unknown]
    training: Mapping[str, Mapping[RowName, Training | Unknown]] = field(default_factory=dict)

    @property
    def excluded(self) -> Mapping[str, Excluded]:
        """The nodes that were not measured."""
        return self.measurement.excluded

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C stopped the comparison."""
        return self.measurement.interrupted

    @property
    def seconds(self) -> float:
        """The wall time of the measurement, without the training."""
        return self.measurement.seconds

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``incomplete`` if a node was not measured; a comparison finds no faults."""
        return "interrupted" if self.interrupted else "incomplete" if self.excluded else "ok"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON with secrets masked; an `Unknown` is its reason under ``unknown``."""
        return {
            "schema": self.SCHEMA,
            "all_reduce": {name: _document(gain) for name, gain in self.gains.items()},
            "training": {name: {row: _document(t) for row, t in rows.items()} for name, rows in self.training.items()},
            "excluded": excluded_document(self.excluded),
            "interrupted": self.interrupted,
        }


def _document(value: NvlinkGain | Training | Unknown) -> dict[str, Any]:
    if isinstance(value, Unknown):
        return {"unknown": redact(value.why)}
    if isinstance(value, Training):
        return asdict(value)
    return {**asdict(value), "time_saved": value.time_saved, "saved": value.time_saved}  # its former name


def next_round(evidence: Evidence) -> Round | None:
    """Return a round of every node with several GPUs by itself, with NVLink and then without; None after that."""
    number = len(evidence.rounds)
    nodes = [node.name for node in evidence.fabric.nodes.values() if len(node.gpus) > 1]
    if number >= len(_VARIANTS) or not nodes:
        return None
    groups = tuple(RankGroup((name,), variant=_VARIANTS[number]) for name in nodes)
    return Round("node", groups, "without NVLink" if _VARIANTS[number] else "with NVLink")


def gains_of(evidence: Evidence) -> dict[str, NvlinkGain | Unknown]:
    """Return the gain of each node's all-reduce; `Unknown` if one of the two variants was not measured."""
    return {name: _gain(name, evidence) for name in evidence.fabric.nodes}


def _gain(name: str, evidence: Evidence) -> NvlinkGain | Unknown:
    figures = [f for measured in evidence.rounds for f in measured.figures if f.group.nodes == (name,)]
    by_variant = {figure.group.variant: figure for figure in figures}
    for variant in _VARIANTS:
        figure = by_variant.get(variant)
        if figure is None or figure.trouble or not figure.gb_per_s:
            what = "without NVLink" if variant else "with NVLink"
            why = (figure.detail or figure.trouble) if figure else "one GPU"
            return Unknown(f"not measured {what}: {why or 'no result'}")
    return NvlinkGain(name, *(by_variant[variant].gb_per_s or 0.0 for variant in _VARIANTS))


def training(row: RowName, python: str, model: Model, timeout_seconds: float) -> Command:
    """Return the command that trains on a node with ``python``, which must have torch; nothing is installed."""
    sizes = (model.steps, model.batch, model.layers, model.width, model.words, model.processes)
    source = importlib.resources.files("gpuops").joinpath("node").joinpath("training.py").read_text("utf-8")
    words = (python, "-", row, *map(str, sizes))
    return Command(words, timeout_seconds=timeout_seconds, lane="nvidia", stdin=source)


def parse_training(answer: Completed) -> Training | Unknown:
    """Parse the row in ``answer``; `Unknown` states why there is none: no torch, no GPU, a failed rank, or too slow."""
    if answer.timed_out:
        return Unknown(f"not finished within {answer.seconds:.0f} s")
    if answer.missing:
        program = answer.question.words[0] if isinstance(answer.question, Command) else "Python"
        return Unknown(f"{program} is not installed")
    try:
        documents = [json.loads(line) for line in answer.out.splitlines() if line.startswith("{")]
        errors = [each["error"] for each in documents if "error" in each]  # the first: later ones only report its end
        return Unknown(str(errors[0])) if errors else _training(documents[-1])
    except (ValueError, LookupError, TypeError, AttributeError):
        return Unknown(f"cannot parse its output: {answer.last_words() or 'none'}")


def _training(document: dict[str, Any]) -> Training | Unknown:
    row, seconds, rate = document["row"], float(document["seconds"]), float(document["samples_per_second"])
    if row not in ROWS or not (seconds > 0 and rate > 0):
        return Unknown("cannot parse its output")
    counts = int(document["gpus"]), int(document["weights"])
    return Training(row, seconds, rate, *counts, alike=document["alike"] is True, torch=str(document["torch"]))


def train(
    pool: Pool, monitor: Callable[[Collection[str]], Snapshot], python: str, model: Model, seconds: float
) -> dict[str, dict[RowName, Training | Unknown]]:
    """Train each row on every node of ``pool``, the nodes side by side; no row takes longer than ``seconds``.

    Just before each row ``monitor`` proves that the nodes are idle. A busy node is excluded, and its rows state why.
    """
    rows_by_node: dict[str, dict[RowName, Training | Unknown]] = {name: {} for name in pool.hosts}
    for row in ROWS:
        pool.exclude(monitor(set(pool.hosts)).excluded.values())
        answers = _ask_all(pool, training(row, python, model, seconds))
        for name, rows in rows_by_node.items():
            rows[row] = parse_training(answers[name]) if name in answers else _untrained(pool, name)
    return rows_by_node


def _untrained(pool: Pool, name: str) -> Unknown:
    return Unknown(pool.excluded[name].why if name in pool.excluded else "no answer")


def _ask_all(pool: Pool, command: Command) -> dict[str, Completed]:
    return {name: answer for name, (answer,) in pool.ask([command]).items()}


def time_saved(rows: Sequence[Training]) -> float | None:
    """Return the fraction of DDP's time without NVLink that NVLink saves; None if one of the two rows is missing."""
    seconds = {row.row: row.seconds for row in rows}
    if not {"ddp", "ddp-no-p2p"} <= set(seconds):
        return None
    return 1 - seconds["ddp"] / seconds["ddp-no-p2p"]
