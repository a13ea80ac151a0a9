"""A burn-in of chosen nodes, as ``validate --level burnin`` and ``onboard`` run one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuops.cli._life import scheduler_of
from gpuops.cli._measuring import Rounds, context_of, fabric_for, healthy
from gpuops.cli._options import Target, fitting_fanout

if TYPE_CHECKING:
    from gpuops.collective.burn_in import BurnInResult
    from gpuops.collective.request import MeasureRequest
    from gpuops.facts import Facts


_DIAGNOSIS_MINUTES = 60
"""What ``dcgmi diag -r 3`` may take, and whatever else is done beside the burn-in itself."""


def burn(target: Target, facts_by_node: Mapping[str, Facts], request: MeasureRequest, seconds: float) -> BurnInResult:
    """Burn in the hosts of which there are facts and that pass the quick checks; the result holds the facts of all."""
    from dataclasses import replace

    from gpuops.collective import burn_in
    from gpuops.collective.pool import Pool

    hosts, profiles, failing = healthy(target, facts_by_node)
    fanout = fitting_fanout(2 * (target.fanout or target.project.fanout)) // 2
    connections = target.connections
    pools = Pool(hosts, connections, fanout), Pool(hosts, connections, fanout)
    with pools[0] as pool, pools[1] as sampled, scheduler_of(target) as scheduler, Rounds() as rounds:
        context = context_of(target, rounds, scheduler, minutes=_DIAGNOSIS_MINUTES + math.ceil(seconds / 60))
        fabric = fabric_for(pool, facts_by_node)
        result = burn_in.burn(pool, sampled, fabric, profiles, request, context, seconds)
    measurement = replace(result.measurement, excluded={**failing, **result.excluded})
    result = replace(result, measurement=measurement)
    return replace(result, facts=result.added_to(facts_by_node))


def seconds_of(text: str) -> float:
    """``30m``, ``90s``, ``2h`` or plain seconds; `click.BadParameter` for anything else."""
    import re

    import click

    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", text.strip())
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0.0
    if not seconds:
        raise click.BadParameter(f'"{text}" is no time; expected 30m, 90s, 2h or seconds')
    return seconds
