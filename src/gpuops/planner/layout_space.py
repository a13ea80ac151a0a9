"""The layouts that a search scores: all that can run, each rule with the reason that it gives against the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gpuops.errors import format_count
from gpuops.layout import missing_layers, splits_layers
from gpuops.planner.candidates import COLUMNS, OFFLOAD, RECOMPUTE, Candidates, Flags, Numbers
from gpuops.planner.frameworks import BARRIERS, Barrier
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.model import TransformerSpec
from gpuops.planner.shard_groups import SHARD_RULES, ShardRule, shard_groups, shards_of
from gpuops.planner.training import TrainingSetup

LEAST_TOKENS = 4096
"""Tokens of a sequence that a context-parallel rank gets at least. Nobody splits shorter ones, and the time model has
no penalty for it: torchtitan and NeMo publish context parallelism from 16,384 tokens up."""
_LARGEST_MICRO_BATCH = 64
"""Sequences of the largest micro-batch that is searched; larger ones are compared if they are asked for."""
_LARGEST_CONTEXT = 64
_MANY = 6
_FREE = ("mbs", "dp", "chunks", "sequence_parallel", "shard")
"""Fields that may be limited to values outside those that are searched: what divides the batch is checked."""

Limits = Mapping[str, tuple[Any, ...]]
"""Allowed values by field of `Layout`, in place of all; strategies and ``--why-not`` narrow the search with them."""
Columns: TypeAlias = "Mapping[str, Numbers]"


@dataclass(frozen=True)
class LayoutSpace:
    """All layouts of a model on all GPUs of a cluster, of which ``limits`` leaves some."""

    model: TransformerSpec
    cluster: ClusterSpec
    training: TrainingSetup
    limits: Limits

    @property
    def barriers(self) -> Sequence[Barrier]:
        """What the framework cannot run."""
        return BARRIERS[self.training.framework]

    @property
    def is_uneven(self) -> bool:
        """Whether the framework can give the first and the last stage of a pipeline a layer less."""
        return self.training.framework == "megatron" and not self.model.encoder_layers

    def splits(self, pp: Any, vpp: Any = 1) -> Any:
        """Return whether ``pp`` stages of ``vpp`` model chunks can share the layers: unevenly only if they must."""
        layers = self.model.blocks
        must = self.is_uneven & (layers % pp != 0)
        return (layers % (pp * vpp) == 0) | (must & splits_layers(layers, pp * vpp, uneven=True))

    def values(self) -> dict[str, tuple[Any, ...]]:
        """Return the values of each field that could be valid at all, whatever the framework and the limits."""
        model, gpus = self.model, self.cluster.gpus
        longest = min(_LARGEST_CONTEXT, max(1, self.training.sequence // LEAST_TOKENS))
        return {
            "tp": tuple(n for n in _divisors(gpus, min(gpus, self.cluster.reach)) if not model.heads % n),
            "pp": tuple(n for n in _divisors(gpus, model.blocks) if self.splits(n)),
            "cp": _divisors(gpus, longest),
            "ep": _divisors(model.experts, gpus) if model.experts else (1,),
            "mbs": _divisors(self.training.global_batch, _LARGEST_MICRO_BATCH),
            "vpp": tuple(
                n for n in range(1, model.blocks + 1) if splits_layers(model.blocks, n, uneven=self.is_uneven)
            ),
            "zero": (0, 1, 2, 3),
            "recompute": RECOMPUTE,
            "offload": OFFLOAD if self.cluster.nvme_bytes else OFFLOAD[:2],
        }

    def allowed(self) -> dict[str, tuple[Any, ...]]:
        """Return the values of each field that the framework can run and the limits leave."""
        runs = {name: tuple(v for v in each if self.runs(name, v)) for name, each in self.values().items()}
        narrowed = {name: tuple(v for v in each if v in self.limits.get(name, each)) for name, each in runs.items()}
        return narrowed | {name: self.limits[name] for name in _FREE if name in self.limits}

    def runs(self, name: str, value: Any) -> bool:
        """Return whether the framework can run ``value`` of a field."""
        return all(barrier.allows(value, self.cluster.gpus) for barrier in self.barriers if barrier.field == name)

    def degrees(self) -> dict[str, Numbers]:
        """Return all combinations of allowed degrees, valid or not; dp is what they leave of the GPUs."""
        allowed = self.allowed()
        x = _product({name: allowed[name] for name in ("tp", "pp", "cp", "ep", "mbs", "vpp")})
        x["dp"] = self.cluster.gpus // np.maximum(x["tp"] * x["pp"] * x["cp"], 1)
        x["chunks"] = self.training.global_batch // np.maximum(x["mbs"] * x["dp"], 1)
        return x

    def ways(self) -> dict[str, Numbers]:
        """Return all allowed combinations of ZeRO stage, offload, recomputation, and GPUs that share states."""
        allowed = self.allowed()
        few = self.asked_shards
        return _product(
            {
                "zero": allowed["zero"],
                "offload": tuple(map(OFFLOAD.index, allowed["offload"])),
                "recompute": tuple(map(RECOMPUTE.index, allowed["recompute"])),
                "shard": few or (0, *shard_groups(self.cluster)),
            }
        )

    @property
    def asked_shards(self) -> tuple[int, ...]:
        """Values of ``shard`` that were asked for one by one, in place of those that are searched."""
        wanted = self.limits.get("shard", ())
        return wanted if len(wanted) < _MANY else ()


class Rule(NamedTuple):
    """A rule of layouts: which columns keep it, and the reason against those that do not, of which there is one."""

    keeps: Callable[[Columns, LayoutSpace], Flags]
    reason: Callable[[Columns, LayoutSpace], str]


def candidates(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, limits: Limits | None = None
) -> Candidates:
    """Return every valid layout that uses all GPUs, in a fixed order; ``limits`` narrows the values of a field.

    Sequences are split wherever tensor parallelism allows it, unless the limits say otherwise.
    """
    columns: Columns = {}
    for _, _, kept in _narrowing(LayoutSpace(model, cluster, training, limits or {})):
        columns = kept
    splits = True in (limits or {}).get("sequence_parallel", (True,))
    columns = {**columns, "sequence_parallel": (columns["tp"] > 1) & splits}
    return Candidates(**{name: np.ascontiguousarray(columns[name]) for name in COLUMNS})


def _narrowing(space: LayoutSpace) -> Iterator[tuple[Rule, Columns, Columns]]:
    """Yield each rule with the layouts before it, and those that keep it, too."""
    columns: Columns = space.degrees()
    for rules in (_OF_DEGREES, _OF_WAYS):
        if rules is _OF_WAYS:
            columns = _with_ways(columns, space)
        for rule in rules:
            kept = _kept(columns, rule.keeps(columns, space))
            yield rule, columns, kept
            columns = kept


def why_none(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, limits: Limits | None = None
) -> str:
    """Return why there is no candidate: the first value, or else the first rule, that leaves none."""
    space = LayoutSpace(model, cluster, training, limits or {})
    if impossible := next(_impossible(space), None):
        return impossible
    reasons = (rule.reason(before, space) for rule, before, kept in _narrowing(space) if not len(kept["dp"]))
    return next(reasons, "each degree is possible, but not all of them together")


def left_out(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, limits: Limits | None = None
) -> Iterator[str]:
    """Yield what the search leaves out within ``limits``, because of the framework or of the model's layers."""
    space = LayoutSpace(model, cluster, training, limits or {})
    for name, values in space.values().items():
        wanted = [value for value in values if value in space.limits.get(name, values)]
        for barrier in space.barriers:
            odd = [value for value in wanted if barrier.field == name and not barrier.allows(value, cluster.gpus)]
            if odd:
                yield f"{name}={choice(odd)}, since {barrier.reason}"
    divisors = _divisors(cluster.gpus, model.blocks)
    pipelines = [n for n in divisors if space.runs("pp", n) and n in space.limits.get("pp", divisors)]
    uneven = [n for n in pipelines if not space.splits(n)]
    if uneven:
        few = choice([missing_layers(model.blocks, n) for n in uneven])
        room = "up to 2 may be missing, at the ends" if space.is_uneven else "none may be missing"
        yield f"pp={choice(uneven)}, since {model.blocks} layers are {few} too few for equal stages ({room})"


def choice(values: Sequence[Any]) -> str:
    """Return ``1|2|4``, or ``2 to 4096`` for many numbers."""
    return "|".join(map(str, values)) if len(values) < _MANY else f"{min(values)} to {max(values)}"


def _undivided(layers: int, parts: int, *, uneven: bool) -> str:
    """Return why a pipeline of ``parts`` cannot share the layers."""
    text = f"{layers} layers are not divisible by pp·vpp={parts}"
    if not uneven or parts > layers:
        return text
    missing = missing_layers(layers, parts)
    return f"{text}: {missing} are missing, and only the first and the last stage may have one less"


def _impossible(space: LayoutSpace) -> Iterator[str]:
    """Yield the reason against each field of which no value is left, and against more ranks than GPUs."""
    values, allowed = space.values(), space.allowed()
    ranks = math.prod(min(space.limits.get(axis, (1,))) for axis in ("dp", "tp", "pp", "cp"))
    if ranks > space.cluster.gpus and len(space.limits.keys() & {"dp", "tp", "pp", "cp"}) > 1:
        yield f"it has {ranks:,} ranks, more than {format_count(space.cluster.gpus, 'GPU')}"
    for name, wanted in space.limits.items():
        if name in _FREE or allowed[name] or not wanted:
            continue
        barred = (barrier for barrier in space.barriers if barrier.field == name and wanted[0] in values[name])
        barrier = next((each for each in barred if not each.allows(wanted[0], space.cluster.gpus)), None)
        yield barrier.reason if barrier else _REASONS[name](wanted[0], space)


def _tp(value: int, space: LayoutSpace) -> str:
    cluster = space.cluster
    if value > cluster.reach:
        reason = f"tp={value} does not fit the {format_count(cluster.reach, 'GPU')} of one NVLink domain"
        return f"{reason}: its four all-reduces per layer would cross the slow network"
    return _ranks(value, space) or f"{space.model.heads} attention heads are not divisible by tp={value}"


def _pp(value: int, space: LayoutSpace) -> str:
    reason = _undivided(space.model.blocks, value, uneven=space.is_uneven)
    return reason if not space.splits(value) else _ranks(value, space)


def _cp(value: int, space: LayoutSpace) -> str:
    tokens = space.training.sequence // value
    if tokens < LEAST_TOKENS:
        return (
            f"cp={value} leaves each rank {tokens:,} of {space.training.sequence:,} tokens, and fewer than "
            f"{LEAST_TOKENS:,} are not worth splitting: give a larger --seq"
        )
    return _ranks(value, space) or f"cp is at most {_LARGEST_CONTEXT}"


def _ep(value: int, space: LayoutSpace) -> str:
    if not space.model.experts:
        return "the model is dense: it has no experts that ep could share"
    if space.model.experts % value:
        return f"{space.model.experts} experts are not divisible by ep={value}"
    return _ranks(value, space)


def _ranks(value: int, space: LayoutSpace) -> str:
    gpus = space.cluster.gpus
    return f"{format_count(value, 'rank')} do not divide {format_count(gpus, 'GPU')}" if gpus % value else ""


_REASONS: Mapping[str, Callable[[Any, LayoutSpace], str]] = {
    "tp": _tp,
    "pp": _pp,
    "cp": _cp,
    "ep": _ep,
    "vpp": lambda value, space: _undivided(space.model.blocks, value, uneven=space.is_uneven),
    "zero": lambda value, _: f"there is no ZeRO stage {value}",
    "recompute": lambda value, _: f"there is no recompute={value}",
    "offload": lambda *_: "offload=nvme needs NVMe drives, and their size is unknown: give it with --nvme",
}
"""Reasons against a value that is not among `LayoutSpace.values`, by field."""


def _uses_all(x: Columns, space: LayoutSpace) -> Flags:
    return np.asarray(x["dp"] * x["tp"] * x["pp"] * x["cp"] == space.cluster.gpus)


def _has_dp(x: Columns, space: LayoutSpace) -> Flags:
    return np.isin(x["dp"], space.limits["dp"]) if "dp" in space.limits else np.ones(len(x["dp"]), dtype=np.bool_)


def _why_not_dp(x: Columns, space: LayoutSpace) -> str:
    wanted = space.limits["dp"]
    if all(space.cluster.gpus % value for value in wanted):
        return _ranks(wanted[0], space)
    dp = wanted[0]
    stages = space.cluster.gpus // (dp * int((x["tp"] * x["cp"]).max()))
    if len(wanted) == 1 and len({*(x["tp"] * x["cp"]).tolist()}) == 1 and not space.splits(stages):
        return f"dp={dp} leaves {format_count(stages, 'stage')}: {_pp(stages, space)}"
    return f"dp={choice(wanted)} leaves a number of GPUs that tp·pp·cp cannot have"


def _why_not_batch(x: Columns, space: LayoutSpace) -> str:
    each, batch = int((x["mbs"] * x["dp"]).min()), space.training.global_batch
    return f"a global batch of {batch} is not divisible by mbs·dp={each} or more: give a larger --gbs, or another"


def _why_not_chunks(x: Columns, space: LayoutSpace) -> str:
    batch, wanted = space.training.global_batch, space.limits.get("chunks", (1,))
    largest = batch // (max(wanted) * int(x["dp"].max()))
    if "mbs" not in space.limits and largest > _LARGEST_MICRO_BATCH:
        return (
            f"chunks={choice(wanted)} needs micro-batches of {largest} sequences or more, and at most "
            f"{_LARGEST_MICRO_BATCH} are searched: give a smaller --gbs"
        )
    return f"chunks={choice(wanted)} is not the global batch of {batch} divided by mbs·dp"


def _splits_sequences(x: Columns, space: LayoutSpace) -> Flags:
    return np.asarray((x["tp"] > 1) | (space.limits.get("sequence_parallel") != (True,)))


def _has_chunks(x: Columns, space: LayoutSpace) -> Flags:
    wanted = space.limits.get("chunks")
    return np.isin(x["chunks"], wanted) if wanted else np.asarray(x["chunks"] >= 1)


def _has_shard(x: Columns, space: LayoutSpace) -> Flags:
    wanted = space.limits.get("shard")
    return np.isin(x["shard"], wanted) if wanted else np.ones(len(x["shard"]), dtype=np.bool_)


def _of_shards(rule: ShardRule) -> Rule:
    return Rule(lambda x, space: rule.keeps(x, space.training), lambda x, _: rule.reason(x))


def _of_one(x: Columns, *names: str) -> dict[str, int]:
    return {name: int(x[name][0]) for name in names}


def _why_not_kv(x: Columns, space: LayoutSpace) -> str:
    return f"{space.model.kv_heads} key-value heads are not divisible by tp={x['tp'][0]}"


def _why_not_width(x: Columns, space: LayoutSpace) -> str:
    model = space.model
    return f"{model.hidden} hidden and {model.ffn} feed-forward units are not both divisible by tp={x['tp'][0]}"


_OF_DEGREES: tuple[Rule, ...] = (
    Rule(_uses_all, lambda x, s: f"tp·pp·cp={int((x['tp'] * x['pp'] * x['cp']).min())} does not divide "
         f"{format_count(s.cluster.gpus, 'GPU')}"),
    Rule(_has_dp, _why_not_dp),
    Rule(lambda x, s: np.full(len(x["dp"]), not s.training.one_process or s.cluster.nodes == 1),
         lambda *_: "DP is one process, which stays on one node"),
    Rule(lambda x, s: np.asarray(s.training.global_batch % np.maximum(x["mbs"] * x["dp"], 1) == 0), _why_not_batch),
    Rule(lambda x, s: np.asarray((s.model.hidden % x["tp"] == 0) & (s.model.ffn % x["tp"] == 0)), _why_not_width),
    Rule(lambda x, s: np.asarray((s.model.kv_heads % x["tp"] == 0) | (x["tp"] % max(s.model.kv_heads, 1) == 0)),
         _why_not_kv),
    Rule(lambda x, s: np.asarray(s.splits(x["pp"], x["vpp"])),
         lambda x, s: _undivided(s.model.blocks, int((x["pp"] * x["vpp"]).min()), uneven=s.is_uneven)),
    Rule(lambda x, _: np.asarray((x["vpp"] == 1) | (x["pp"] > 1)),
         lambda x, _: f"vpp={x['vpp'][0]} interleaves pipeline stages, but pp is 1"),
    Rule(lambda x, _: np.asarray((x["dp"] * x["cp"]) % x["ep"] == 0),
         lambda x, _: "ep={ep} does not divide dp·cp={}, whose ranks hold the experts".format(
             int((x["dp"] * x["cp"]).max()), **_of_one(x, "ep"))),
    Rule(lambda x, s: np.asarray((x["cp"] == 1) | ((s.training.sequence % (2 * x["cp"]) == 0)
                                                   & (s.training.sequence > 1))),
         lambda x, s: f"{s.training.sequence:,} tokens are not divisible by 2·cp={2 * int(x['cp'].min())}"),
    Rule(lambda x, s: np.asarray((x["tp"] == 1) | (s.training.sequence % x["tp"] == 0) | (s.training.sequence == 1)),
         lambda x, s: f"{s.training.sequence:,} tokens are not divisible by tp={int(x['tp'].min())}"),
    Rule(_has_chunks, _why_not_chunks),
    Rule(_splits_sequences, lambda *_: "sequence parallelism splits what tensor parallelism repeats, but tp is 1"),
    Rule(lambda x, _: np.asarray((x["vpp"] == 1) | (x["chunks"] % x["pp"] == 0)),
         lambda x, _: "chunks={chunks} is not a multiple of pp={pp}, which interleaving (vpp) needs".format(
             **_of_one(x, "chunks", "pp"))),
)  # fmt: skip
"""Rules of tp, pp, cp, ep, mbs and vpp, with what follows from them; `layout.rule_violations` has most of them, too."""

_OF_WAYS: tuple[Rule, ...] = (
    Rule(lambda x, _: np.asarray(x["zero"] >= np.array([0, 1, 3])[x["offload"]]),
         lambda x, _: f"offload={OFFLOAD[int(x['offload'][0])]} moves what ZeRO partitions, "
         f"so it needs zero={(0, 1, 3)[int(x['offload'][0])]} or higher"),
    Rule(lambda x, _: np.asarray((x["dp"] * x["cp"] > 1) | (x["zero"] == 0) | (x["offload"] > 0)),
         lambda x, _: f"zero={x['zero'][0]} partitions states between replicas, but dp·cp is 1"),
    Rule(lambda x, _: np.asarray((x["pp"] == 1) | (x["zero"] <= 1)),
         lambda x, _: "pp={pp} with ZeRO {zero}: a pipeline would reduce or gather for every micro-batch (R9); "
         "use zero=1".format(**_of_one(x, "pp", "zero"))),
    Rule(lambda x, s: np.asarray((x["offload"] == 0) | (x["zero"] < 2) | (s.training.framework != "megatron")),
         lambda *_: "Megatron-LM offloads no more than the optimizer's states, so use zero=1; see deepspeed"),
    Rule(lambda x, s: np.asarray((x["ep"] == 1) | (x["zero"] < 3) | (s.training.framework != "deepspeed")),
         lambda *_: "DeepSpeed's experts work with ZeRO 2 at most"),
    Rule(_has_shard, lambda *_: "HSDP repeats what a node, an NVLink domain or several of them share, and no such "
         "group is a part of dp"),
    *map(_of_shards, SHARD_RULES),
)  # fmt: skip
"""Rules of ZeRO, offload and recomputation. R9 is of Hugging Face's guide: with a pipeline, ZeRO 1 at most."""


def _with_ways(degrees: Columns, space: LayoutSpace) -> dict[str, Numbers]:
    """Return each of ``degrees`` with each of the ways to keep its states."""
    ways = space.ways()
    size, each = len(degrees["dp"]), len(ways["zero"])
    columns = {name: np.repeat(values, each) for name, values in degrees.items()}
    columns |= {name: np.tile(values, size) for name, values in ways.items()}
    return columns if space.asked_shards else columns | {"shard": shards_of(columns)}


def _divisors(number: int, most: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, min(number, most) + 1) if not number % n)


def _product(values: Mapping[str, tuple[Any, ...]]) -> dict[str, Numbers]:
    grid = np.meshgrid(*(np.array(each, dtype=np.int64) for each in values.values()), indexing="ij")
    return {name: column.ravel() for name, column in zip(values, grid, strict=True)}


def _kept(columns: Columns, rows: Flags) -> dict[str, Numbers]:
    return {name: column[rows] for name, column in columns.items()}
