"""Nodes that are a little slow in all that they do, within themselves and with others: they explain their transfers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from gpuops.isolation.parts import Part
from gpuops.isolation.readings import Reading, Readings, deviation, upper_quartile
from gpuops.isolation.spread import LEAST

_DEVIATIONS = 3


class SlowNodes:
    """The nodes of ``readings`` that are slow in all that they do, with the fraction of normal speed that they reach.

    A node with a slow NVLink and fast NICs is not among them, and neither is the partner of a slow node.
    """

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._levels = dict(self._find())

    def explain(self, reading: Reading) -> bool:
        """Return True if a slow node takes part in the transfer, which is no worse than the node makes it."""
        least = 1 - self._readings.tolerance
        slow = [self._levels[name] for name in reading.figure.group.nodes if name in self._levels]
        return len(reading.figure.group.nodes) > 1 and any(reading.ratio >= level * least for level in slow)

    def _find(self) -> Iterator[tuple[str, float]]:
        inside: dict[str, list[float]] = {}
        for reading in self._readings.inside():
            if reading.ratio:
                inside.setdefault(reading.figure.group.nodes[0], []).append(reading.ratio)
        every = [ratio for ratios in inside.values() for ratio in ratios]
        scatter = deviation(every, 1.0) if max(every, default=0.0) >= 1 else 0.0
        for name, ratios in inside.items():
            level = statistics.median(ratios)
            if level < 1 - LEAST - _DEVIATIONS * scatter / math.sqrt(len(ratios)):
                level = max(level, self._with_others(name))
                if level < 1 - LEAST:
                    yield name, level

    def _with_others(self, name: str) -> float:
        """Return what the node's better transfers reach; 1 if there are none."""
        every = self._readings.of(Part("node", name))
        ratios = sorted(r.at_line_rate for r in every if len(r.figure.group.nodes) > 1)
        return upper_quartile(ratios) if ratios else 1.0
