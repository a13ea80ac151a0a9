"""Baselines: what a fleet's own nodes reached, as median and spread, with its age; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass

from gpuops.trends.spread import robust_spread

MOST_DAYS = 90.0
"""Older figures weigh nothing: drivers, firmware and cables have changed since; a choice."""
FEWEST = 3
"""Nodes or pairs: with two that differ, it is unknown which one is usual."""
MOST_SPREADS, LEAST_MARGIN = 4.0, 0.05
"""A healthy node is this many spreads below the median in 1 of 30,000 (normal distribution); the margin is at least
this fraction of the median, because one afternoon's figures are closer to each other than those of a year. A choice."""
_DAY = 86400.0


@dataclass(frozen=True)
class Baseline:
    """The median of ``count`` nodes or pairs, and their robust standard deviation (1.4826 MAD), in GB/s.

    ``oldest`` and ``newest`` are the times of the figures.
    """

    gb_per_s: float
    spread_gb_per_s: float
    count: int
    oldest: dt.datetime
    newest: dt.datetime

    @property
    def floor_gb_per_s(self) -> float:
        """The lowest figure that a healthy node or pair reaches."""
        return self.gb_per_s - max(MOST_SPREADS * self.spread_gb_per_s, LEAST_MARGIN * self.gb_per_s)


def baseline(figures: Iterable[tuple[dt.datetime, float]], now: dt.datetime) -> Baseline | None:
    """Return the baseline of the latest figure (GB/s) of each node or pair; None if fewer than three are recent."""
    recent = [(at, value) for at, value in figures if (now - at).total_seconds() <= MOST_DAYS * _DAY]
    if len(recent) < FEWEST:
        return None
    middle, spread = robust_spread([value for _, value in recent])
    times = [at for at, _ in recent]
    return Baseline(middle, spread, len(recent), min(times), max(times))
