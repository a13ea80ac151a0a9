"""Search: every valid layout of a model on a cluster, scored in blocks of arrays; the same answer every time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuops.errors import LayoutError, format_count
from gpuops.planner.candidates import Candidates, Flags, Numbers
from gpuops.planner.constants import MEMORY_PRIORS, MemoryConstants
from gpuops.planner.estimate import Estimate, estimates
from gpuops.planner.hardware import USUAL_NVME_GB_PER_S, ClusterSpec
from gpuops.planner.layout_space import Limits, candidates, choice, why_none
from gpuops.planner.memory import memory
from gpuops.planner.model import TransformerSpec
from gpuops.planner.step_time import step_time
from gpuops.planner.training import TrainingSetup

BLOCK = 8192
"""Layouts that are scored at once, so that their arrays stay in the caches of a CPU; our own choice."""


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
        named = {name: values for name, values in (limits or {}).items() if (name, values) != ("shard", (0,))}
        wanted = ", ".join(f"{name}={choice(values)}" for name, values in named.items())
        conditions = f" with {wanted}" if wanted else ""
        raise LayoutError(
            f"{model.name or 'the model'}: no layout uses {format_count(cluster.gpus, 'GPU')}{conditions}: "
            f"{why_none(model, cluster, training, limits)}"
        )
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


@dataclass(frozen=True)
class WayOut:
    """One of the guide's three answers to a model that does not fit, and its fastest layout; None if it fits nowhere.

    ``what`` is ``gpu`` (bigger GPUs), ``gpus`` (more GPUs) or ``offload`` (host memory and NVMe); ``change`` names it.
    Where no layout is valid at all, it is ``nodes`` (fewer nodes) or ``batch`` (another global batch).
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
        drives = replace(cluster, nvme_bytes=_NVME_BYTES, nvme_gb_per_s=USUAL_NVME_GB_PER_S)
        ways = [("offload to host memory", cluster), ("offload to NVMe of 30 TB a node, 3 GB/s a GPU", drives)]
        if training.framework != "deepspeed":  # which alone offloads more than the optimizer, and to NVMe
            ways = [(f"--framework deepspeed, {change}", machines) for change, machines in ways]
        job, offloads = replace(training, framework="deepspeed"), {"offload": ("cpu", "nvme"), **limits}
        yield _first("offload", ways, model, job, offloads)


def other_jobs(
    model: TransformerSpec, cluster: ClusterSpec, training: TrainingSetup, limits: Limits | None = None
) -> Iterator[WayOut]:
    """Yield what helps where no layout is valid: the most nodes, and the nearest global batch, with which one fits."""
    fewer = range(cluster.nodes - 1, 0, -1)
    changes = ((format_count(nodes, "node"), cluster.with_gpus(nodes * cluster.gpus_per_node)) for nodes in fewer)
    yield _first("nodes", changes, model, training, limits or {})
    batches = (replace(training, global_batch=batch) for batch in _near(training.global_batch, cluster.gpus))
    found = (_first("batch", [(f"--gbs {job.global_batch}", cluster)], model, job, limits or {}) for job in batches)
    yield next((each for each in found if each.estimate), WayOut("batch", "", None))


def _near(batch: int, gpus: int) -> list[int]:
    """Return the multiples next to ``batch`` of every number of replicas that ``gpus`` can have, the nearest first.

    Those that all GPUs can share come first if they are near: with others, few layouts are possible, and slow ones.
    """
    replicas = [n for n in range(1, gpus + 1) if not gpus % n]
    multiples = {n * factor for n in replicas for factor in (batch // n, batch // n + 1) if factor}

    def order(each: int) -> tuple[bool, int, int]:
        away = abs(each - batch)
        return bool(each % gpus) or away > _NEAR * batch, away, each

    return sorted(multiples, key=order)


_NEAR = 0.1
"""How far a batch may differ to be preferred; as for spares, no more than changes how a model learns."""
_NVME_BYTES = 30 * 10**12
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
