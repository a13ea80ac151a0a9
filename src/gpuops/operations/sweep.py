"""Measurements of one operation at many sizes, and with other settings, on idle nodes that pass the quick checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from gpuops.collective import sharp_session, sweep_session
from gpuops.collective.measuring import MeasureContext
from gpuops.collective.pool import Pool
from gpuops.collective.request import SharpRequest, SweepRequest
from gpuops.collective.sharp import SharpComparison
from gpuops.collective.sweep import SweepResult
from gpuops.isolation.fabric import Fabric
from gpuops.operations.health import check_profiles
from gpuops.operations.measure import check, context_of, fabric_for, healthy, pool_of, probes
from gpuops.profile import Profile
from gpuops.workspace import Workspace

Request = TypeVar("Request", SweepRequest, SharpRequest)
Measured = TypeVar("Measured", SweepResult, SharpComparison)
Measure = Callable[[Pool, Fabric, Mapping[str, Profile], Request, MeasureContext], Measured]


def sweep(work: Workspace, request: SweepRequest) -> SweepResult:
    """Sweep the hosts that pass the quick checks and are proved idle."""
    return _on_healthy(work, request, sweep_session.measure)


def sharp(work: Workspace, request: SharpRequest) -> SharpComparison:
    """Compare the hosts that pass the quick checks and are proved idle, with NVLink SHARP and SHARP and without."""
    return _on_healthy(work, request, sharp_session.measure)


def _on_healthy(work: Workspace, request: Request, measure: Measure[Request, Measured]) -> Measured:
    """Return what ``measure`` returns for the healthy hosts, with the reasons why the others took no part."""
    check_profiles(work.hosts, work.catalogue)
    check(work, request.force_busy)
    gathered = work.nodes.gather(probes(work))
    gathered.raise_if_interrupted()
    hosts, profiles, excluded = healthy(work, gathered.values)
    work.nodes.activity("mapping the fabric")
    with pool_of(work, hosts) as pool, context_of(work) as context:
        fabric = fabric_for(pool, gathered.values)
        result = measure(pool, fabric, profiles, request, context)
    return replace(result, excluded={**gathered.excluded, **excluded, **result.excluded})
