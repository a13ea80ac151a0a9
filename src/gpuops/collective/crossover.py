"""The size at which an operation turns from latency to bandwidth, from its time at several sizes; pure.

Hockney's model (R. Hockney, The communication challenge for MPP, Parallel Computing 20, 1994) describes the time of a
transfer of S bytes by a latency alpha and an asymptotic bandwidth B:

    t(S) = alpha + S / B

At S = alpha · B both terms are equal, so that the bandwidth S / t is B / 2. This size is n½. Below it the latency takes
most of the time, above it the bandwidth does. B is algorithm bandwidth; the bus bandwidth is B times a constant factor,
so n½ is the same for both.

alpha and B are the least-squares fit of the relative errors: the sum of ((alpha + S/B - t) / t)² is minimal, so that
each size counts alike. NCCL changes its algorithm and protocol with the size, so the true curve is several such lines.
The size at which half of the measured peak is reached is therefore also read from the curve itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuops.collective.engines import Point

_LEAST_POINTS = 3
_STILL_RISING = 1.05
"""If the last doubling of the size raised the bandwidth by more than 5 %, the peak is not reached.

In the model, the bandwidth at S = k · n½ is k/(k+1) of B, and the last doubling raised it by the factor (k+2)/(k+1).
A factor of 1.05 or less means k ≥ 19: at least 95 % of B.
"""


@dataclass(frozen=True)
class Fit:
    """The fitted line: alpha in seconds, B as algorithm bandwidth in GB/s, and the largest relative error of a time."""

    alpha_seconds: float
    algbw_gb_per_s: float
    error: float

    @property
    def half_size_bytes(self) -> float:
        """n½ in bytes: alpha · B."""
        return self.alpha_seconds * self.algbw_gb_per_s * 1e9

    def seconds(self, size_bytes: float) -> float:
        """Return the time of one operation."""
        return self.alpha_seconds + size_bytes / self.algbw_gb_per_s / 1e9


@dataclass(frozen=True)
class Crossover:
    """The highest bus bandwidth and its size, the measured size at which half of it is reached, and the fit.

    ``half_size_bytes`` is None if even the smallest size reaches half of the peak. ``fit`` is None if there are too few
    points, or if the times show no latency. Unless ``is_peak_reached``, the bandwidth still rises at the largest size,
    and n½ is larger than stated.
    """

    peak_gb_per_s: float
    peak_size_bytes: int
    half_size_bytes: float | None
    is_peak_reached: bool
    fit: Fit | None


def crossover_of(points: Sequence[Point]) -> Crossover | None:
    """Return the crossover of ``points``, which are in order of size; None without any."""
    if not points:
        return None
    peak = max(points, key=lambda point: point.gb_per_s)
    rising = peak is points[-1] and (len(points) < 2 or peak.gb_per_s > _STILL_RISING * points[-2].gb_per_s)
    return Crossover(peak.gb_per_s, peak.size_bytes, _half_size(points, peak), not rising, fit_of(points))


def _half_size(points: Sequence[Point], peak: Point) -> float | None:
    """Return where the curve first passes half of the peak; between two sizes, it is a line in log-log scale."""
    half = peak.gb_per_s / 2
    for lower, upper in itertools.pairwise(points):
        if lower.gb_per_s < half <= upper.gb_per_s:
            share = math.log(half / lower.gb_per_s) / math.log(upper.gb_per_s / lower.gb_per_s)
            return float(lower.size_bytes * (upper.size_bytes / lower.size_bytes) ** share)
    return None


def fit_of(points: Sequence[Point]) -> Fit | None:
    """Return the fit of alpha and B; None if there are too few points, or if one of the two would not be positive.

    With x = 1/t and y = S/t, it minimizes the sum of (alpha · x + y / B - 1)².
    """
    if len(points) < _LEAST_POINTS:
        return None
    x = [1 / point.seconds for point in points]
    y = [point.size_bytes / point.seconds for point in points]
    xx, xy, yy = _dot(x, x), _dot(x, y), _dot(y, y)
    determinant = xx * yy - xy * xy
    if determinant <= 0:
        return None
    alpha = (sum(x) * yy - sum(y) * xy) / determinant
    slope = (sum(y) * xx - sum(x) * xy) / determinant
    if alpha <= 0 or slope <= 0:
        return None
    error = max(abs(alpha * a + slope * b - 1) for a, b in zip(x, y, strict=True))
    return Fit(alpha, 1 / slope / 1e9, error)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))
