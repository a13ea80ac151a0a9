"""Search: every valid layout of a model on a cluster, scored in blocks of arrays; the same answer every time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from gpuops.errors import LayoutError
from gpuops.planner.candidates import COLUMNS, OFFLOAD, RECOMPUTE, Candidates, Flags, Numbers
from gpuops.planner.constants import MEMORY_PRIORS, MemoryConstants
from gpuops.planner.estimate import Estimate, estimates
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.memory import memory
from gpuops.planner.model import TransformerSpec
from gpuops.planner.step_time import step_time
from gpuops.planner.training import TrainingSetup

BLOCK = 8192
"""Layouts that are scored at once, so that their arrays stay in the caches of a CPU; our own choice."""
_LEAST_TOKENS = 4096
"""Tokens of a sequence that a context-parallel rank gets at least. Nobody splits shorter ones, and the time model has
no penalty for it: torchtitan and NeMo publish context parallelism from 16,384 tokens up."""
_LARGEST_MICRO_BATCH = 64
_LARGEST_CONTEXT = 64
_MANY = 6

Limits = Mapping[str, tuple[Any, ...]]
"""Allowed values by field of `Layout`, in place of all; strategies and ``--why-not`` narrow the search with them."""


@dataclass(frozen=True)
class Found:
    """What a search found: the fastest layouts that fit, the Pareto front of speed against memory, and the counts.

    ``closest`` is the layout that needs least memory, where none fits.
    """

    best: tuple[Estimate, ...]
    front: tuple[Estimate, ...]
    scored: int
    fitting: int
    closest: Estimate | None = None


def search(
    model: TransformerSpec,
    cluster: ClusterSpec,
    training: TrainingSetup,
    *,
    limits: Limits | None = None,
    top: int = 5,
    memory_constants: MemoryConstants = MEMORY_PRIORS,
) -> Found:
    """Score every valid layout that uses all GPUs of ``cluster``; raise `LayoutError` where there is none at all."""
    layouts = candidates(model, cluster, training, limits)
    if not len(layouts):
        raise LayoutError(_none(model, cluster, training, limits))
    seconds, needed, fits = _scores(model, cluster, training, layouts, memory_constants)

    def estimated(rows: Numbers) -> tuple[Estimate, ...]:
        arguments = (model, cluster, training, layouts.take(rows), None, memory_constants)
        return tuple(estimates(*arguments))

    fitting = np.flatnonzero(fits)
    order = fitting[np.lexsort((needed[fitting], seconds[fitting]))]
    least = estimated(np.array([int(np.argmin(needed))]))[0] if not len(fitting) else None
    front = estimated(_front(order, needed))
    return Found(estimated(order[:top]), front, len(layouts), len(fitting), least)


def _scores(
    model: TransformerSpec,
    cluster: ClusterSpec,
    training: TrainingSetup,
    layouts: Candidates,
    memory_constants: MemoryConstants,
) -> tuple[Numbers, Numbers, Flags]:
    """Return seconds, bytes on a GPU and whether it fits, of every layout."""
    columns: list[tuple[Numbers, Numbers, Flags]] = []
    for start in range(0, len(layouts), BLOCK):
        block = layouts.take(slice(start, start + BLOCK))
        space = memory(model, cluster, training, block, memory_constants)
        time = step_time(model, cluster, training, block)
        columns.append((time.total, space.total, space.fits(cluster)))
    seconds, needed, fits = (np.concatenate(column) for column in zip(*columns, strict=True))
    return seconds, needed, fits


def _front(order: Numbers, needed: Numbers) -> Numbers:
    """Return the layouts of ``order``, fastest first, of which none faster needs as little memory."""
    if not len(order):
        return order
    so_far = np.minimum.accumulate(needed[order])
    return np.asarray(order[np.concatenate(([True], so_far[1:] < so_far[:-1]))])


def candidates(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, limits: Limits | None = None
) -> Candidates:
    """Return every valid layout that uses all GPUs, in a fixed order; ``limits`` narrows the values of a field."""
    every = _narrowed(_values(model, cluster, training), _runnable(cluster, training))
    allowed = _narrowed(every, limits or {})
    names = ("tp", "pp", "cp", "ep", "mbs", "vpp")
    degrees = _product({name: allowed[name] for name in names})
    degrees["dp"] = cluster.gpus // np.maximum(degrees["tp"] * degrees["pp"] * degrees["cp"], 1)
    degrees = _kept(degrees, _is_valid(degrees, model, cluster, training, allowed))
    degrees["chunks"] = training.global_batch // (degrees["mbs"] * degrees["dp"])
    degrees = _kept(degrees, _has_schedule(degrees, allowed))
    ways = _ways(allowed)
    size, each = len(degrees["dp"]), len(ways["zero"])
    columns = {name: np.repeat(values, each) for name, values in degrees.items()}
    columns |= {name: np.tile(values, size) for name, values in ways.items()}
    columns = _kept(columns, _agrees(columns))
    columns["sequence_parallel"] = columns["tp"] > 1
    return Candidates(**{name: np.ascontiguousarray(columns[name]) for name in COLUMNS})


def _values(model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup) -> dict[str, tuple[Any, ...]]:
    """Return the values of each field that could be valid at all."""
    gpus, batch = cluster.gpus, training.global_batch
    reach = min(gpus, cluster.reach)
    longest = min(_LARGEST_CONTEXT, max(1, training.sequence // _LEAST_TOKENS))
    return {
        "tp": tuple(n for n in _divisors(gpus, reach) if not model.heads % n),
        "pp": tuple(n for n in _divisors(gpus, model.blocks) if not model.blocks % n),
        "cp": _divisors(gpus, longest),
        "ep": _divisors(model.experts, gpus) if model.experts else (1,),
        "mbs": tuple(n for n in _divisors(batch, _LARGEST_MICRO_BATCH) if not n & (n - 1)),
        "vpp": _divisors(model.blocks, model.blocks),
        "zero": (0, 1, 2, 3),
        "recompute": RECOMPUTE,
        "offload": OFFLOAD if cluster.nvme_bytes else OFFLOAD[:2],
    }


def _runnable(cluster: ClusterSpec, training: TrainingSetup) -> Limits:
    """Return what the framework can run, as gpuops' launch targets for it have it: see their rules."""
    if training.framework == "deepspeed":  # its topology has no axis for contexts, and its pipeline does not interleave
        return {"cp": (1,), "vpp": (1,)}
    if training.framework == "fsdp":  # a mesh of dp and tp (fsdp2), or of dp, cp and tp (accelerate-fsdp)
        sharded = (2, 3) if cluster.gpus > 1 else (0,)
        return {"pp": (1,), "vpp": (1,), "ep": (1,), "zero": sharded, "offload": ("none", "cpu")}
    return {}


def _narrowed(values: Mapping[str, tuple[Any, ...]], limits: Limits) -> dict[str, tuple[Any, ...]]:
    """Return ``values`` within ``limits``. Only the micro-batch can have others: what divides the batch is checked."""
    narrowed = {name: tuple(v for v in each if v in limits.get(name, each)) for name, each in values.items()}
    rest = {name: limits[name] for name in ("mbs", "dp", "chunks") if name in limits}
    return {**narrowed, **rest}


def _divisors(number: int, most: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, min(number, most) + 1) if not number % n)


def _product(values: Mapping[str, tuple[Any, ...]]) -> dict[str, Numbers]:
    grid = np.meshgrid(*(np.array(each, dtype=np.int64) for each in values.values()), indexing="ij")
    return {name: column.ravel() for name, column in zip(values, grid, strict=True)}


def _kept(columns: Mapping[str, Numbers], rows: Flags) -> dict[str, Numbers]:
    return {name: column[rows] for name, column in columns.items()}


def _is_valid(
    x: Mapping[str, Numbers], model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, allowed: Limits
) -> Flags:
    """Return which degrees use every GPU, divide the model (`layout.rule_violations`) and the batch."""
    rules = [
        x["dp"] * x["tp"] * x["pp"] * x["cp"] == cluster.gpus,
        training.global_batch % np.maximum(x["mbs"] * x["dp"], 1) == 0,
        model.hidden % x["tp"] == 0,
        model.ffn % x["tp"] == 0,
        (model.kv_heads % x["tp"] == 0) | (x["tp"] % max(model.kv_heads, 1) == 0),
        model.blocks % (x["pp"] * x["vpp"]) == 0,
        (x["vpp"] == 1) | (x["pp"] > 1),
        (x["dp"] * x["cp"]) % x["ep"] == 0,
        (x["cp"] == 1) | ((training.sequence % (2 * x["cp"]) == 0) & (training.sequence > 1)),
        (x["tp"] == 1) | (training.sequence % x["tp"] == 0) | (training.sequence == 1),
        x["cp"] * x["tp"] <= cluster.gpus,
        np.full(len(x["dp"]), not training.one_process or cluster.nodes == 1),
    ]
    if "dp" in allowed:
        rules.append(np.isin(x["dp"], allowed["dp"]))
    return np.asarray(reduce(np.logical_and, rules))


def _has_schedule(x: Mapping[str, Numbers], allowed: Limits) -> Flags:
    """Return which numbers of micro-batches a pipeline can run: interleaving needs a multiple of the stages."""
    runs = (x["chunks"] >= 1) & ((x["vpp"] == 1) | (x["chunks"] % x["pp"] == 0))
    return np.asarray(runs & np.isin(x["chunks"], allowed["chunks"]) if "chunks" in allowed else runs)


def _ways(allowed: Limits) -> dict[str, Numbers]:
    """Return the combinations of ZeRO stage, offload and recomputation."""
    words = {
        "zero": allowed["zero"],
        "offload": tuple(map(OFFLOAD.index, allowed["offload"])),
        "recompute": tuple(map(RECOMPUTE.index, allowed["recompute"])),
    }
    ways = _product(words)
    return _kept(ways, ways["zero"] >= np.array([0, 1, 3])[ways["offload"]])


def _agrees(x: Mapping[str, Numbers]) -> Flags:
    """Return which layouts shard what is there to shard, and keep to R9: with a pipeline, ZeRO 1 at most."""
    alone = x["dp"] * x["cp"] == 1
    return np.asarray((~alone | (x["zero"] == 0) | (x["offload"] > 0)) & ((x["pp"] == 1) | (x["zero"] <= 1)))


def _choice(values: tuple[Any, ...]) -> str:
    """Return ``1|2|4``, or ``2 to 4096`` for many numbers."""
    return "|".join(map(str, values)) if len(values) < _MANY else f"{min(values)} to {max(values)}"


def _none(model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, limits: Limits | None) -> str:
    where = f"{cluster.gpus} GPUs with a global batch of {training.global_batch}"
    if limits:
        fixed = ", ".join(f"{name}={_choice(values)}" for name, values in limits.items())
        return f"{model.name or 'the model'}: no layout of {where} has {fixed}; give another batch or fewer conditions"
    return (
        f"{model.name or 'the model'}: no layout uses {where}; "
        "the batch must be divisible by the data-parallel degree: give a larger --gbs"
    )


@dataclass(frozen=True)
class WayOut:
    """One of the guide's three answers to a model that does not fit, and its fastest layout; None if it fits nowhere.

    ``what`` is ``gpu`` (bigger GPUs), ``gpus`` (more GPUs) or ``offload`` (host memory and NVMe); ``change`` names it.
    """

    what: str
    change: str
    estimate: Estimate | None


def ways_out(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, limits: Limits | None = None
) -> Iterator[WayOut]:
    """Yield the guide's three answers, "bigger GPUs, more GPUs, more CPU and NVMe", each with the least that fits.

    ``limits`` are those of a strategy, to which the answers keep; one without offload gets no answer with it.
    """
    limits = limits or {}
    yield _first("gpu", _bigger(cluster), model, training, {**_ON_GPU, **limits})
    yield _first("gpus", _more(cluster), model, training, {**_ON_GPU, **limits})
    if not cluster.nvme_bytes and limits.get("offload") != ("none",):
        drives = replace(cluster, nvme_bytes=_NVME_BYTES, nvme_gb_per_s=_NVME_GB_PER_S)
        way = [("offload to NVMe of 30 TB a node, 3 GB/s a GPU", drives)]
        yield _first("offload", way, model, training, limits)


_NVME_BYTES, _NVME_GB_PER_S = 30 * 10**12, 3.0
"""What a node is taken to have in NVMe where the cluster does not say: four drives of 7.68 TB shared by eight GPUs."""
_ON_GPU: Limits = {"offload": ("none",)}
_SIZES_GIB = (40, 80, 96, 141, 192, 288, 384, 576, 768, 1152)


def _bigger(cluster: ClusterSpec) -> Iterator[tuple[str, ClusterSpec]]:
    for gib in _SIZES_GIB:
        size = gib << 30
        if size > cluster.gpu.memory_bytes:
            yield f"GPUs with {gib} GiB", replace(cluster, gpu=replace(cluster.gpu, memory_bytes=size))


def _more(cluster: ClusterSpec) -> Iterator[tuple[str, ClusterSpec]]:
    for doublings in range(1, 11):
        gpus = cluster.gpus << doublings
        yield f"{gpus} GPUs", cluster.with_gpus(gpus)


def _first(
    what: str,
    changes: Iterable[tuple[str, ClusterSpec]],
    model: TransformerSpec,
    training: TrainingSetup,
    limits: Limits,
) -> WayOut:
    """Return the first change with which a layout fits; more GPUs get a batch that they can share."""
    for change, cluster in changes:
        batch = math.lcm(training.global_batch, cluster.gpus) if what == "gpus" else training.global_batch
        try:
            job = replace(training, global_batch=batch)
            found = search(model, cluster, job, top=1, limits=limits)
        except LayoutError:  # the model does not divide by what this many GPUs take
            continue
        if found.best:
            return WayOut(what, change, found.best[0])
    return WayOut(what, "", None)
