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
import copy
import functools
import math
import operator
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST = 0.02
"""A part that is slower by less is not faulty: no operator would repair it."""
_LARGEST_RATIO = 100
_LEAST_RATIO = 1e-7
"""The product of the ratios of 40 rounds is still a number that a float holds."""
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
_CORE_WIDTH, _CORE_WIDTH_RATIO = 0.01, 0.05
"""What a slow part reaches scatters by at least this much, and by this share of its shift."""
_LARGEST_SHIFT = 3.5
"""Of a part that is slower by 97 %."""
_STEADY_WIDTH = 0.003
"""The values of a steady fault scatter as healthy ones do or twice as much, and at least by this."""
_WIDTH_OF_TRAFFIC = 0.2
"""What others' traffic leaves of a link changes by 20 % and more between rounds."""
_STRAY, _STRAY_DENSITY = 0.05, 0.25
"""The share of values that are anywhere between -4 and 0, whatever limits the others."""
_NEGLIGIBLE = 30
"""Alternatives that are this much less likely than the best, as a logarithm, add nothing to an e-value."""
_SHARES = {1.0: 0.7, 0.67: 0.1, 0.5: 0.1, 0.33: 0.1}
"""In which share of the rounds a part is slow, with the weight of each; below 1 it is flapping."""


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
    """Distribution of the values of healthy parts, fitted to ``values`` of which most are healthy.

    Values below ``-far`` are disturbances. If there are fewer of these than in ``like``, as that one has more values of
    the same machines, they are taken from it. If there are too few values to show the core, it is that of ``similar``.
    """

    def __init__(self, values: Iterable[float], like: Spread | None = None, *, similar: Spread | None = None) -> None:
        ordered = sorted(values)
        above = ordered[bisect.bisect_left(ordered, 0.0) :]
        middle = max(_FINEST, statistics.median(above)) if len(above) >= _ENOUGH else _UNKNOWN_SCATTER
        self.freedom = _likeliest_freedom(above, middle) if len(above) >= _ENOUGH_FOR_SHAPE else 3
        self.scale = middle / _MEDIAN_OF_T[self.freedom]
        if similar is not None and len(above) < _ENOUGH_FOR_SHAPE:
            self.scale, self.freedom = similar.scale, similar.freedom
        self.far = self.scale * _FAR_OF_T[self.freedom]
        low = ordered[: bisect.bisect_left(ordered, -self.far)]
        self._count, self._low, self._histogram = len(ordered), len(low), _histogram(low)
        self.disturbed, self.density = usual_share(self._low, self._count), _density(self._histogram)
        if like is not None and like.disturbed > self.disturbed:
            self.disturbed, self.density = like.disturbed, like.density

    def without(self, values: Iterable[float]) -> Spread:
        """Return the spread without ``values`` of it: a part is not judged by its own disturbances."""
        low = [u for u in values if u < -self.far]
        if not low:
            return self
        others = copy.copy(self)
        histogram = [max(0.0, every - own) for every, own in zip(self._histogram, _histogram(low), strict=True)]
        others.disturbed = usual_share(self._low - len(low), self._count - len(low))
        others.density = _density(histogram)
        return others

    def healthy(self, u: float, shift: float = 0.0) -> float:
        """Return the density of ``u`` for a healthy part whose own level is shifted by ``shift``."""
        return (1 - self.disturbed) * _t(u - shift, self.scale, self.freedom) + self._disturbance(u)

    def slow(self, u: float, shift: float) -> float:
        """Return the density of ``u`` for a part that ``shift`` (below 0) limits; a disturbance may be worse still."""
        width = max(self.scale, _CORE_WIDTH, -_CORE_WIDTH_RATIO * shift)
        core = (1 - self._worse(shift)) * _t(u - shift, width, self.freedom)
        return core + (self._disturbance(u) if u < shift else 0.0)

    def _disturbance(self, u: float) -> float:
        return self.disturbed * (self.density[_bin(u)] if u < 0 else 1e-3)

    @functools.lru_cache(maxsize=256)  # noqa: B019 - as many as there are shifts
    def _worse(self, shift: float) -> float:
        return self.disturbed * sum(self.density[: _bin(shift)]) * _BIN

    def certainty(
        self, values: Sequence[float], least: float = LEAST, others: Iterable[tuple[Spread, float]] = ()
    ) -> Certainty:
        """Return how sure it is that a part with ``values``, one for each round, is slower than healthy parts.

        Healthy parts may differ by ``least``, a fraction of the level. ``others`` are values of the part of another
        kind, each with the spread of its kind.
        """
        readings = [*((self, u) for u in values), *others]
        if not readings:
            return Certainty(0.0, 0.0, 1.0, 0)
        steps = [(1 - math.exp(u), [spread.slow(value, u) for spread, value in readings]) for u in _shifts(least)]
        log_e, best = math.inf, (-math.inf, 0.0, 1.0)
        for shift in (0.0, 0.01, math.log1p(-least) / 2, math.log1p(-least)):
            healthy = [spread.healthy(u, shift) for spread, u in readings]
            log_healthy, e_value = sum(map(math.log, healthy)), 0.0
            for slow_by, slow in _likely(steps, healthy):
                ratios = list(map(operator.truediv, slow, healthy))
                if min(ratios) < _LEAST_RATIO:
                    ratios = [max(ratio, _LEAST_RATIO) for ratio in ratios]
                for share, weight in _SHARES.items():
                    likelihood_ratio, bounded_ratio = _likelihood_ratios(ratios, share)
                    e_value += weight / len(_shifts(least)) * bounded_ratio
                    fault = (math.log(weight * likelihood_ratio) + log_healthy, slow_by, share)
                    best = max(best, fault, key=operator.itemgetter(0))
            log_e = min(log_e, math.log(e_value))
        return Certainty(log_e, *best[1:], len(readings))

    def steadiness(self, values: Iterable[float]) -> float:
        """Return the log of the e-value of a fault among ``values`` against others' traffic, which is never as steady.

        Each slow value is predicted from those before it.
        """
        log_e, slow = 0.0, list[float]()
        for u in (u for u in values if u < math.log1p(-LEAST)):
            if slow:
                away = u - statistics.median_high(slow)
                width = max(self.scale, _STEADY_WIDTH) * math.sqrt(1 + 1 / len(slow))
                near = statistics.fmean(_t(away, times * width, self.freedom) for times in (1, 2))
                steady = (1 - _STRAY) * near + _STRAY * _STRAY_DENSITY
                traffic = (1 - _STRAY) * (abs(away) < _WIDTH_OF_TRAFFIC / 2) / _WIDTH_OF_TRAFFIC
                log_e += math.log(steady / (traffic + _STRAY * _STRAY_DENSITY))
            slow.append(u)
        return log_e


_Step = tuple[float, Sequence[float]]
"""A fraction, and the density of each value of a part that is slower by as much."""


def _likely(steps: Sequence[_Step], healthy: Sequence[float]) -> list[_Step]:
    """Return the steps that are not negligible beside the best, whatever the share of slow rounds."""
    most = [math.log(math.prod(map(max, slow, healthy))) for _, slow in steps]
    return [step for step, bound_of_step in zip(steps, most, strict=True) if bound_of_step > max(most) - _NEGLIGIBLE]


@functools.lru_cache(maxsize=8)
def _shifts(least: float) -> Sequence[float]:
    """Return the shifts that are tried for a part that is slower by more than ``least``, dense enough to miss none."""
    shifts = [math.log1p(-1.3 * least)]
    while shifts[-1] > -_LARGEST_SHIFT:
        shifts.append(shifts[-1] - 2 * max(_CORE_WIDTH, -_CORE_WIDTH_RATIO * shifts[-1]))
    return shifts


def _likelihood_ratios(ratios: Sequence[float], share: float) -> tuple[float, float]:
    """Return how much likelier the values are if the part is slow in a ``share`` of the rounds and else healthy.

    The second figure counts no round for more than `_LARGEST_RATIO`. ``ratios`` are those of an always slow part.
    """
    factors = ratios if share == 1.0 else [share * ratio + (1 - share) for ratio in ratios]
    whole = math.prod(factors)
    if max(factors) <= _LARGEST_RATIO:
        return whole, whole
    return whole, math.prod([min(factor, _LARGEST_RATIO) for factor in factors])


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
    return log_sum(logs) - math.log(2)


def bound(log_e: float, parts: int) -> float:
    """Return the bound on the chance, for the whole run, that a healthy one of ``parts`` of a kind looks like this."""
    return min(1.0, math.exp(log_e_needed(1.0, parts) - log_e))


def log_e_needed(chance: float, parts: int) -> float:
    """Return the log e-value of which `bound` is ``chance``."""
    return math.log(_KINDS_JUDGED * max(1, parts) / chance)


def log_sum(logs: Iterable[float]) -> float:
    """Return the logarithm of the sum of numbers, from their logarithms."""
    values = list(logs)
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


@functools.lru_cache(maxsize=16)
def _factor(freedom: int) -> float:
    return math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)


def _t(u: float, scale: float, freedom: int) -> float:
    """Return the density of Student's t distribution."""
    tail: float = (1 + (u / scale) ** 2 / freedom) ** (-(freedom + 1) / 2)
    return _factor(freedom) / scale * tail


def _likeliest_freedom(above: Sequence[float], middle: float) -> int:
    def log_likelihood(freedom: int) -> float:
        return sum(math.log(_t(u, middle / _MEDIAN_OF_T[freedom], freedom) + 1e-300) for u in above)

    above = above[:: max(1, len(above) // _ENOUGH_TO_COMPARE)]
    return max(_MEDIAN_OF_T, key=log_likelihood)


def _bin(u: float) -> int:
    return min(_BINS - 1, max(0, int((u + _BIN * _BINS) / _BIN)))


def _histogram(low: Iterable[float]) -> list[float]:
    counts = [0.0] * _BINS
    for u in low:
        for offset, weight in enumerate(_SMOOTHING, -(len(_SMOOTHING) // 2)):
            counts[min(_BINS - 1, max(0, _bin(u) + offset))] += weight
    return counts


def _density(histogram: Iterable[float]) -> list[float]:
    """Return the density of disturbances; a little everywhere, because few were seen."""
    counts = [count + 1 / _BINS for count in histogram]
    total = sum(counts) * _BIN
    return [count / total for count in counts]
