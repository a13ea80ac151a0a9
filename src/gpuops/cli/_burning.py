"""A burn-in of chosen nodes, as ``validate --level burnin`` and ``onboard`` run one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuops.cli._life import scheduler_of
from gpuops.cli._measuring import Rounds, healthy, surroundings, wired
from gpuops.cli._options import Target, fitting_fanout

if TYPE_CHECKING:
    from gpuops.collective.burn_in import BurnInResult
    from gpuops.collective.measuring import MeasureRequest
    from gpuops.facts import Facts


_DIAGNOSIS_MINUTES = 60
"""What ``dcgmi diag -r 3`` may take, and whatever else is done beside the burn-in itself."""


def burn(
    target: Target, known: Mapping[str, Facts], wish: MeasureRequest, seconds: float
) -> tuple[dict[str, Facts], BurnInResult]:
    """Burn in the hosts of ``known`` that pass the quick checks; their facts with what that shows of each.

    Who took no part is among them, and says why.
    """
    from dataclasses import replace

    from gpuops.collective import burn_in as burning
    from gpuops.collective.pool import Pool

    hosts, profiles, failing = healthy(target, known)
    fanout = fitting_fanout(2 * (target.fanout or target.project.fanout)) // 2
    connections = target.connections
    pools = Pool(hosts, connections, fanout), Pool(hosts, connections, fanout)
    with pools[0] as pool, pools[1] as eye, scheduler_of(target) as scheduler, Rounds() as rounds:
        around = surroundings(target, rounds, scheduler, minutes=_DIAGNOSIS_MINUTES + math.ceil(seconds / 60))
        done = burning.burn(pool, eye, wired(pool, known), profiles, wish, around, seconds)
    done = replace(done, excluded={**failing, **done.excluded})
    return done.added_to(known), done


def seconds_of(text: str) -> float:
    """``30m``, ``90s``, ``2h`` or plain seconds; `click.BadParameter` for anything else."""
    import re

    import click

    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smh]?)", text.strip())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not seconds:
        raise click.BadParameter(f'"{text}" is no time; expected 30m, 90s, 2h or seconds')
    return seconds
