"""Loopback of every HCA of idle nodes; also of nodes that fail a check, because this is how one finds out why."""

from __future__ import annotations

from dataclasses import replace

from gpuops.collective.loopback import Loopback, measure_loopback
from gpuops.collective.measuring import idle_nodes
from gpuops.collective.request import MeasureRequest
from gpuops.operations.health import check_profiles, profiles_of, quick_probes
from gpuops.operations.measure import check, context_of, pool_of
from gpuops.requests import LoopbackRequest
from gpuops.workspace import Workspace


def loopback(work: Workspace, request: LoopbackRequest) -> Loopback:
    """Measure each HCA of the hosts that are proved idle, with itself."""
    measuring = MeasureRequest(force_busy=tuple(request.force_busy))
    check_profiles(work.hosts, work.catalogue)
    check(work, request.force_busy)
    gathered = work.nodes.gather(quick_probes(work.catalogue))
    gathered.raise_if_interrupted()
    hosts = [host for host in work.hosts if host.name in gathered.values]
    profiles = profiles_of(hosts, gathered.values, work.catalogue)
    with (
        pool_of(work, hosts) as pool,
        context_of(work) as context,
        idle_nodes(pool, profiles, measuring, context) as monitor,
    ):
        result = measure_loopback(pool, monitor, context.activity)
    return replace(result, excluded={**gathered.excluded, **result.excluded})
