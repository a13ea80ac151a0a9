"""Centre and spread of values of which some may be wild; pure."""

from __future__ import annotations

from collections.abc import Collection
from statistics import median

_MAD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""


def robust_spread(values: Collection[float]) -> tuple[float, float]:
    """Return the median of the values, and their standard deviation as 1.4826 median absolute deviations from it."""
    middle = median(values)
    return middle, _MAD * median(abs(value - middle) for value in values)
