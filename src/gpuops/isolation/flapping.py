"""Which GPU of a node explains that the node is slow in some rounds only; pure.

Each GPU is a hypothesis, and that no single GPU is at fault is another one. A GPU that flaps slows all GPUs together
and its own pairs, in the same share of the rounds and by the same fraction. The e-value of a hypothesis compares that
with a healthy node (`gpuops.isolation.spread`). The mean of the e-values is that of the node, and the share of one in
the sum is the chance that it is the right one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

from gpuops.isolation.spread import Spread, log_sum


class Flapping:
    """The hypotheses about one node.

    ``whole`` and ``pairs`` hold the logarithm of each ratio to the healthy level: of all its GPUs together, and of the
    pairs of each GPU.
    """

    def __init__(
        self, whole: Sequence[float], whole_spread: Spread, pairs: Mapping[int, Sequence[float]], pair_spread: Spread
    ) -> None:
        fast: float | None = None  # GPUs whose pairs are all fast are alike, so one of them stands for the others
        self._log_e_by_gpu = dict[int, float]()
        for gpu, values in pairs.items():
            is_fast = min(values, default=0.0) > -pair_spread.far
            if not is_fast or fast is None:
                others = [(pair_spread, u) for u in values]
                self._log_e_by_gpu[gpu] = whole_spread.certainty(whole, others=others).log_e
                fast = self._log_e_by_gpu[gpu] if is_fast else fast
            else:
                self._log_e_by_gpu[gpu] = fast
        self._log_e_of_none = whole_spread.certainty(whole).log_e

    @functools.cached_property
    def log_e(self) -> float:
        """The logarithm of the node's e-value: half of the weight is on its GPUs, half on none of them."""
        return log_sum(self._weighted.values())

    @functools.cached_property
    def _weighted(self) -> dict[int | None, float]:
        share = math.log(2 * max(1, len(self._log_e_by_gpu)))
        weighted: dict[int | None, float] = {gpu: log_e - share for gpu, log_e in self._log_e_by_gpu.items()}
        return {**weighted, None: self._log_e_of_none - math.log(2)}

    def chance(self, gpu: int | None) -> float:
        """Return the chance that ``gpu`` is at fault, if any is; None stands for no single GPU."""
        return math.exp(self._weighted[gpu] - self.log_e)

    def suspects(self, doubt: float) -> tuple[int | None, ...]:
        """Return the hypotheses, the likeliest first, of which all but ``doubt`` are the right one."""
        ordered, missing = sorted(self._weighted, key=lambda gpu: -self._weighted[gpu]), 1.0
        found = list[int | None]()
        for gpu in ordered:
            found.append(gpu)
            missing -= self.chance(gpu)
            if missing <= doubt:
                break
        return tuple(found)

    def is_located(self, doubt: float) -> bool:
        """Return True if a single GPU explains the rounds."""
        return len(self.suspects(doubt)) == 1 and self.suspects(doubt) != (None,)
