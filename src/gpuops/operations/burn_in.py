"""Burn-in: a sustained load on idle nodes, and the facts that it reveals about each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpuops.collective import burn_in
from gpuops.collective.burn_in import BurnInResult
from gpuops.collective.request import MeasureRequest
from gpuops.facts import Facts
from gpuops.operations.measure import context_of, fabric_for, healthy, pool_of
from gpuops.workspace import Workspace

_DIAGNOSIS_MINUTES = 60
"""Time for ``dcgmi diag -r 3`` and everything else that is done besides the burn-in itself."""


def burn(
    work: Workspace,
    request: MeasureRequest,
    facts_by_node: Mapping[str, Facts],
    seconds: float,
    skip: Iterable[str] = (),
) -> BurnInResult:
    """Burn in the hosts that have facts and pass the quick checks but ``skip``; the result has the facts of all."""
    hosts, profiles, excluded = healthy(work, facts_by_node, skip)
    forks = work.nodes.fitting(2 * work.nodes.forks) // 2
    minutes = _DIAGNOSIS_MINUTES + math.ceil(seconds / 60)
    pools = pool_of(work, hosts, forks), pool_of(work, hosts, forks)
    with pools[0] as pool, pools[1] as sampled, context_of(work, minutes=minutes) as context:
        fabric = fabric_for(pool, facts_by_node)
        result = burn_in.burn(pool, sampled, fabric, profiles, request, context, seconds)
    measurement = replace(result.measurement, excluded={**excluded, **result.measurement.excluded})
    result = replace(result, measurement=measurement)
    return replace(result, facts=result.added_to(facts_by_node))
