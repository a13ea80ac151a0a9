"""When a job finishes: the fastest layout of ever fewer nodes, while the others stand by as spares; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuops.errors import LayoutError
from gpuops.planner.estimate import Estimate
from gpuops.planner.goodput import DAY, ClusterJob, Goodput, goodput, running_fraction
from gpuops.planner.hardware import ClusterSpec
from gpuops.planner.layout_space import Limits
from gpuops.planner.model import TransformerSpec
from gpuops.planner.search import search
from gpuops.planner.training import TrainingSetup

_ENOUGH = 0.999
"""Fraction of the time in which a job has its nodes from which on more spares only stand by; our own choice."""
_LARGEST_SHARE = 0.25
"""Fraction of the nodes that is tried as spares at most; our own choice."""
_BATCH_CHANGE = 0.1
"""How far the batch may differ, so that one or two nodes fewer can share it: no more than changes how a model learns;
our own choice."""


@dataclass(frozen=True)
class Finish:
    """A job on the nodes that ``spares`` leave, with its fastest layout: ``days`` from its start to its end."""

    nodes: int
    spares: int
    estimate: Estimate
    goodput: Goodput
    days: float


def finishes(
    model: TransformerSpec,
    cluster: ClusterSpec,
    training: TrainingSetup,
    job: ClusterJob,
    tokens: float,
    limits: Limits | None = None,
) -> list[Finish]:
    """Return what becomes of a job of ``tokens`` with each number of spares, the first to finish first.

    Fewer nodes get the nearest batch that they can share, if that is close to the one of ``training``. Numbers of nodes
    that no layout can use are passed over. The last number of spares is the first with which the job hardly ever waits.
    """
    found = list(_each(model, cluster, training, job, tokens, limits))
    return sorted(found, key=lambda each: (each.days, each.spares))


def _each(
    model: TransformerSpec,
    cluster: ClusterSpec,
    training: TrainingSetup,
    job: ClusterJob,
    tokens: float,
    limits: Limits | None,
) -> Iterator[Finish]:
    for spares in range(int(cluster.nodes * _LARGEST_SHARE) + 1):
        part = cluster.with_gpus((cluster.nodes - spares) * cluster.gpus_per_node) if spares else cluster
        try:
            found = search(model, part, _shared(training, part), limits=limits, top=1)
        except LayoutError:  # the batch or the model does not divide by so many GPUs
            continue
        if found.best:
            one = replace(job, gpus=part.gpus, spares=spares)
            yield _finish(part, found.best[0], one, tokens)
            if running_fraction(one) >= _ENOUGH:
                return


def _shared(training: TrainingSetup, cluster: ClusterSpec) -> TrainingSetup:
    """Return ``training`` with the nearest batch that all GPUs, else all nodes, can share; else unchanged."""
    wanted = training.global_batch
    for share in (cluster.gpus, cluster.nodes):
        nearest = max(1, round(wanted / share)) * share
        if abs(nearest - wanted) <= _BATCH_CHANGE * wanted:
            return replace(training, global_batch=nearest)
    return training


def _finish(cluster: ClusterSpec, estimate: Estimate, job: ClusterJob, tokens: float) -> Finish:
    result = goodput(job)
    days = tokens / estimate.tokens_per_second / max(result.trained, 1e-12) / DAY
    return Finish(cluster.nodes, job.spares, estimate, result, days)
