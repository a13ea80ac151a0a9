"""How healthy parts scatter, estimated from the fleet itself, and how sure it is that a slow part is not one of them.

A value is ``u = log(GB/s / healthy level)`` of one part in one round. Healthy values are a Student-t core about 0 and,
in a share ``disturbed``, something below it: a collision, another tenant, an outlier. No fault makes a part faster, so
the values above 0 show the core, and their mirror image below 0 is healthy too.

The e-value of a part is ``E = min over b of mean over (d, phi) of the product over rounds of min(100, f1 / f_b)``. Here
f1 is the density of a part slower by the fraction d in a share phi of the rounds, and f_b that of a healthy part whose
own level is shifted by b, because healthy parts differ. For a healthy part ``P(E >= x) <= 1 / x``, however often one
looks in between (Ville 1939; Ramdas, Grünwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe anytime-valid
inference"). No round counts for more than 100 to 1 (Huber 1965, "A robust version of the probability ratio test"): one
value in a hundred may be of a kind that no run measured.
"""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LEAST = 0.02
"""What is slower by less is no fault: nobody repairs it."""
_LARGEST_LOG_RATIO = math.log(100)
_MEDIAN_OF_T = {3: 0.765, 5: 0.727, 10: 0.700, 30: 0.683}
"""The median of |t| by degrees of freedom, which turns a median deviation into a scale."""
_FAR_OF_T = {3: 10.2, 5: 5.9, 10: 4.1, 30: 3.4}
"""The quantile 0.999 of |t| by degrees of freedom: a value further below is a disturbance."""
_FINEST = 5e-4
_ENOUGH_TO_COMPARE = 1000
_UNKNOWN_SCATTER = 0.02
"""The median deviation that is assumed if there are fewer values than `_ENOUGH` above the level."""
_ENOUGH, _ENOUGH_FOR_SHAPE = 8, 30
_USUALLY_DISTURBED, _PRIOR = 0.01, 50
"""What is assumed of the share of disturbed values before any is seen, and how many values that weighs as much as."""
_KINDS_JUDGED = 16
"""Kinds of parts within and between nodes, for speed and for failures: they share the allowed chance equally."""
_BIN = 0.05
_BINS = 80
"""The density of disturbances is a histogram of ``u`` from -4 (2 % of the level is left) to 0."""
_SMOOTHING = (0.1, 0.2, 0.4, 0.2, 0.1)
_CORE_WIDTH, _CORE_WIDTH_RATIO = 0.01, 0.03
"""What a slow part reaches scatters by at least this much, and by this share of its shift."""
_SHARES = {1.0: 0.7, 0.67: 0.1, 0.5: 0.1, 0.33: 0.1}
"""In which share of the rounds a part is slow, with the weight of each; below 1 it is flapping."""
_STEPS = 32


@dataclass(frozen=True)
class Certainty:
    """Result for one part: the natural logarithm of its e-value, and the fault that fits best.

    ``slow_by`` is the fraction of the level that is lost in the share ``slow_share`` of its ``rounds``.
    """

    log_e: float
    slow_by: float
    slow_share: float
    rounds: int


class Spread:
    """Distribution of the values of healthy parts, fitted to ``values`` of which most are healthy."""

    def __init__(self, values: Iterable[float]) -> None:
        ordered = sorted(values)
        above = ordered[bisect.bisect_left(ordered, 0.0) :]
        middle = max(_FINEST, statistics.median(above)) if len(above) >= _ENOUGH else _UNKNOWN_SCATTER
        self.freedom = _likeliest_freedom(above, middle) if len(above) >= _ENOUGH_FOR_SHAPE else 3
        self.scale = middle / _MEDIAN_OF_T[self.freedom]
        low = ordered[: bisect.bisect_left(ordered, -self.scale * _FAR_OF_T[self.freedom])]
        self.disturbed = usual_share(len(low), len(ordered))
        self._density = _smoothed(low)

    def healthy(self, u: float, shift: float = 0.0) -> float:
        """Return the density of ``u`` for a healthy part whose own level is shifted by ``shift``."""
        return (1 - self.disturbed) * _t(u - shift, self.scale, self.freedom) + self._disturbance(u)

    def slow(self, u: float, shift: float) -> float:
        """Return the density of ``u`` for a part that ``shift`` (below 0) limits; a disturbance may be worse still."""
        width = max(self.scale, _CORE_WIDTH, -_CORE_WIDTH_RATIO * shift)
        core = (1 - self._worse(shift)) * _t(u - shift, width, self.freedom)
        return core + (self._disturbance(u) if u < shift else 0.0)

    def _disturbance(self, u: float) -> float:
        return self.disturbed * (self._density[_bin(u)] if u < 0 else 1e-3)

    @functools.lru_cache(maxsize=256)  # noqa: B019 - as many as there are shifts
    def _worse(self, shift: float) -> float:
        return self.disturbed * sum(self._density[: _bin(shift)]) * _BIN

    def certainty(self, values: Sequence[float], least: float = LEAST) -> Certainty:
        """Return how sure it is that a part with ``values``, one for each round, is slower than healthy parts.

        Healthy parts may differ by ``least``, a fraction of the level.
        """
        faults = list(self._faults(values, least))
        log_e_by_shift = {}
        for shift in (0.0, 0.01, math.log1p(-least) / 2, math.log1p(-least)):
            healthy = [math.log(self.healthy(u, shift)) for u in values]
            log_e_by_shift[shift] = [fault.log_weight + fault.log_ratio(healthy) for fault in faults]
        log_e = min(map(_log_sum, log_e_by_shift.values()))
        best = max(faults, key=lambda fault: fault.log_weight + sum(fault.log_densities))
        return Certainty(log_e, best.slow_by, best.share, len(values))

    def _faults(self, values: Sequence[float], least: float) -> Iterator[_Fault]:
        """Yield the alternatives: slow by fractions from ``least`` to 0.97, always or in a share of the rounds."""
        step = math.log(0.97 / (1.3 * least)) / (_STEPS - 1)
        well = [self.healthy(u) for u in values]
        for fraction in (1.3 * least * math.exp(step * number) for number in range(_STEPS)):
            slow = [self.slow(u, math.log1p(-fraction)) for u in values]
            for share, weight in _SHARES.items():
                logs = [math.log(share * s + (1 - share) * w) for s, w in zip(slow, well, strict=True)]
                yield _Fault(fraction, share, math.log(weight / _STEPS), logs)


class _Fault(NamedTuple):
    """One alternative: slow by a fraction in a share of the rounds, and the log density that it gives each value."""

    slow_by: float
    share: float
    log_weight: float
    log_densities: Sequence[float]

    def log_ratio(self, healthy: Sequence[float]) -> float:
        pairs = zip(self.log_densities, healthy, strict=True)
        return sum(min(_LARGEST_LOG_RATIO, own - other) for own, other in pairs)


def usual_share(count: int, of: int) -> float:
    """Return the share of disturbed results, of which ``count`` were seen, in healthy parts."""
    return min(0.5, (count + _PRIOR * _USUALLY_DISTURBED) / (of + _PRIOR))


def failure_log_e(failed: int, rounds: int, usual: float) -> float:
    """Return the log e-value of a part that fails in ``failed`` of ``rounds``; healthy parts fail in a share ``usual``.

    The alternatives are parts that fail in 95 % and in 50 % of the rounds.
    """
    logs = (
        failed * math.log(rate / usual) + (rounds - failed) * math.log((1 - rate) / (1 - usual)) for rate in (0.95, 0.5)
    )
    return _log_sum(logs) - math.log(2)


def bound(log_e: float, parts: int) -> float:
    """Return the bound on the chance, for the whole run, that a healthy one of ``parts`` of a kind looks like this."""
    return min(1.0, math.exp(math.log(_KINDS_JUDGED * max(1, parts)) - log_e))


def _log_sum(logs: Iterable[float]) -> float:
    values = list(logs)
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


@functools.lru_cache(maxsize=16)
def _log_factor(freedom: int) -> float:
    return math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)


def _t(u: float, scale: float, freedom: int) -> float:
    """Return the density of Student's t distribution."""
    tail: float = (1 + (u / scale) ** 2 / freedom) ** (-(freedom + 1) / 2)
    return math.exp(_log_factor(freedom)) / scale * tail


def _likeliest_freedom(above: Sequence[float], middle: float) -> int:
    def log_likelihood(freedom: int) -> float:
        return sum(math.log(_t(u, middle / _MEDIAN_OF_T[freedom], freedom) + 1e-300) for u in above)

    above = above[:: max(1, len(above) // _ENOUGH_TO_COMPARE)]
    return max(_MEDIAN_OF_T, key=log_likelihood)


def _bin(u: float) -> int:
    return min(_BINS - 1, max(0, int((u + _BIN * _BINS) / _BIN)))


def _smoothed(low: Sequence[float]) -> list[float]:
    """Return the density of disturbances; a little everywhere, because few were seen."""
    counts = [0.0] * _BINS
    for u in low:
        for offset, weight in enumerate(_SMOOTHING, -(len(_SMOOTHING) // 2)):
            counts[min(_BINS - 1, max(0, _bin(u) + offset))] += weight
    counts = [count + 1 / _BINS for count in counts]
    total = sum(counts) * _BIN
    return [count / total for count in counts]
