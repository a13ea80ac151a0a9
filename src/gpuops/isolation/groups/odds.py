"""The e-values of nodes that may slow large groups down, as in `gpuops.isolation.spread`, for many sets of results.

A straggler slows all of its large groups down by one fraction; one that does so at times is as rare as wrong
blame may be. So one fast group nearly clears a node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import product

from gpuops.isolation.spread import LEAST, Spread

_LARGEST_LOG_RATIO = math.log(100)
"""No group counts for more than 100 to 1."""
_SHARES = {1.0: 0.99999, 0.5: 0.00001}
"""In which share of its groups a straggler is slow, with the weight of each."""
_STEPS = 44
_LEAST_LOSS, _MOST_LOSS = -math.log1p(-1.3 * LEAST), -math.log1p(-0.97)
_LOSSES = tuple(_LEAST_LOSS * (_MOST_LOSS / _LEAST_LOSS) ** (step / (_STEPS - 1)) for step in range(_STEPS))
"""How far below the level a straggler's groups may be, as a logarithm: steps of 12 %, a few times what it scatters."""
_SHIFTS = (0.0, 0.01, math.log1p(-LEAST) / 2, math.log1p(-LEAST))
"""The own level of a healthy node may differ from that of others by as much."""
_LOG_WEIGHTS = tuple(math.log(weight / _STEPS) for _, weight in product(_LOSSES, _SHARES.values()))


class EValues:
    """E-values of nodes from the values ``u`` of their groups, if healthy groups scatter by ``spread``."""

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._log_ratios: dict[float, tuple[tuple[float, ...], ...]] = {}

    def log_e(self, values: Iterable[float]) -> float:
        """Return the logarithm of the e-value, the least one over the levels that a healthy node may have."""
        by_value = [self._of(u) for u in values]
        return min(_log_mean([ratios[shift] for ratios in by_value]) for shift in range(len(_SHIFTS)))

    def _of(self, u: float) -> tuple[tuple[float, ...], ...]:
        """Return the log ratio of each kind of straggler to a healthy node, for each level of the healthy one."""
        if u not in self._log_ratios:
            log_slow = [math.log(density) for density in self._slow(u)]
            healthy = [math.log(self._spread.healthy(u, shift)) for shift in _SHIFTS]
            self._log_ratios[u] = tuple(
                tuple(min(_LARGEST_LOG_RATIO, slow - well) for slow in log_slow) for well in healthy
            )
        return self._log_ratios[u]

    def _slow(self, u: float) -> Iterator[float]:
        well = self._spread.healthy(u)
        for loss in _LOSSES:
            slow = self._spread.slow(u, -loss)
            yield from (share * slow + (1 - share) * well for share in _SHARES)


def _log_mean(ratios: list[tuple[float, ...]]) -> float:
    columns = zip(*ratios, strict=True) if ratios else ((0.0,) for _ in _LOG_WEIGHTS)
    logs = [math.fsum((weight, *column)) for weight, column in zip(_LOG_WEIGHTS, columns, strict=True)]
    largest = max(logs)
    return largest + math.log(sum(math.exp(log - largest) for log in logs))
