"""The outlook of a job: how often it fails, how often to write checkpoints, and when it finishes."""

from __future__ import annotations

from gpuops.errors import LayoutError
from gpuops.operations.past.failures import failure_rate
from gpuops.operations.planning.machines import Machines
from gpuops.planner.estimate import Estimate
from gpuops.planner.finishing import finishes
from gpuops.planner.goodput import DAY, ClusterJob, goodput
from gpuops.planner.layout_space import Limits
from gpuops.planner.model import TransformerSpec
from gpuops.planner.training import TrainingSetup
from gpuops.requests import PlanRequest
from gpuops.results.layout_plan import Outlook
from gpuops.workspace import Workspace


def outlook_of(
    work: Workspace,
    request: PlanRequest,
    machines: Machines,
    model: TransformerSpec,
    training: TrainingSetup,
    best: Estimate,
    limits: Limits,
) -> Outlook:
    """Return the outlook of a job with the fastest layout; of one with an end, also with each number of spares."""
    cluster = machines.cluster
    job = ClusterJob(
        cluster.gpus,
        cluster.gpus_per_node,
        failure_rate(work, machines.nodes, cluster.gpus_per_node),
        request.checkpoint_seconds,
        request.restart_seconds,
        request.repair_seconds,
    )
    tokens = request.tokens or (request.days or 0) * DAY * best.tokens_per_second
    ends = finishes(model, cluster, training, job, tokens, limits) if tokens else []
    return Outlook(job, goodput(job), tokens, tuple(ends))


def check_work(request: PlanRequest) -> None:
    """Raise `LayoutError` if a request says in two ways how long the job is, or that it has no work."""
    if request.days is not None and request.tokens is not None:
        raise LayoutError("--days and --tokens both say how long the job is; give one of them")
    if any(work is not None and work <= 0 for work in (request.days, request.tokens)):
        raise LayoutError("a job needs more than 0 days, or more than 0 tokens")
