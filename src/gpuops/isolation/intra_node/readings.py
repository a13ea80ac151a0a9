"""Results within nodes beside those of comparable nodes in the same round, and how much healthy ones scatter; pure."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuops.isolation.evidence import Evidence, Kind, Measured
from gpuops.isolation.fabric import FabricNode
from gpuops.isolation.readings import deviation
from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.isolation.spread import Spread

FIRST_ROUNDS = 3
"""Rounds of every node by itself, so that each node's repeats show its own scatter, and most faults that come and go.

A fault that acts in 45 % of the rounds shows in at least one of three with a chance of 83 %."""
SLOW = 0.94
"""Below this fraction of comparable groups in the same round, a group is slow, if the fleet is too small to show its
scatter. Others draw the line at 5 % (superbench, data-diagnosis.md) and 10 % (huggingface/gpu-fryer)."""
_LEAST_SLOW, _MOST_SLOW = 0.03, 0.2
"""A node whose median is lower than this fraction is never slow; one that is lower than the other always is ..."""
_DEVIATIONS = 3
"""... and in between, if it is this many standard deviations of the nodes' medians below the level. Of 1,000 healthy
nodes, one is measured again."""
_ENOUGH_NODES = 8
_MANY_NODES = 256
"""The spread of so many nodes is the same with and without the node that is judged."""
_LEAST_RATIO = 0.05
"""A figure of 0 GB/s counts as this fraction: its logarithm is that of a very slow node."""
KINDS: Mapping[str, Kind] = {"": "slow", "hang": "hang", "wrong": "wrong", "error": "error"}
"""The kind of a fault inside a node, by a result's trouble; other troubles blame no part of a node."""
_FAILURES = {"hang": "never ended", "wrong": "gave wrong sums"}

NodeKind = tuple[int, float | None]
"""What makes nodes comparable: the number of GPUs, and their expected bandwidth together, in GB/s."""


@dataclass(frozen=True)
class NodeReading:
    """A result and the GB/s that comparable groups of the same round reach; None if that is unknown.

    ``number`` is that of the round among those inside nodes.
    """

    number: int
    figure: GroupResult
    normal: float | None

    @property
    def ratio(self) -> float:
        """The fraction of the normal bandwidth, 0 only of a failure; 1 if that is unknown."""
        if self.figure.trouble:
            return 0.0 if self.figure.trouble in KINDS else 1.0
        known = self.figure.gb_per_s is not None and self.normal
        return max(_LEAST_RATIO, (self.figure.gb_per_s or 0.0) / (self.normal or 1.0)) if known else 1.0

    def __str__(self) -> str:
        if self.figure.trouble:
            return _FAILURES.get(self.figure.trouble, self.figure.trouble)
        return f"{self.figure.gb_per_s or 0:.0f}" + (f" of {self.normal:.0f} GB/s" if self.normal else " GB/s")


def middle(readings: Sequence[NodeReading]) -> NodeReading:
    """Return the reading whose ratio is the median, or the lower one of two."""
    return sorted(readings, key=lambda reading: reading.ratio)[(len(readings) - 1) // 2]


def log_ratios(readings: Iterable[NodeReading]) -> list[float]:
    """Return the logarithm of each ratio above 0."""
    return [math.log(reading.ratio) for reading in readings if reading.ratio]


def node_kind(node: FabricNode, evidence: Evidence) -> NodeKind:
    """Return what makes ``node`` comparable with others."""
    return len(node.gpus), evidence.expected.get(RankGroup((node.name,)))


class NodeSpread:
    """The scatter of the results within nodes: of all GPUs together and of pairs, and what is slow because of it.

    A node is slow if the median of its rounds is below ``slow_edge``, a fraction of the level. A single result below
    ``low_edge`` is a disturbance or a fault.
    """

    def __init__(self, readings: Mapping[str, Sequence[Sequence[NodeReading]]], confidence: float) -> None:
        self.nodes, self.confidence = max(1, len(readings)), confidence
        self._readings = readings
        medians = [statistics.median(r.ratio for r in whole) for own in readings.values() if (whole := _whole(own))]
        self.slow_edge = _slow_edge(medians)
        self.low_edge = min(SLOW, max(1 - _MOST_SLOW, math.exp(-self.whole("").far)))

    @functools.cached_property
    def nodes_low_at_times(self) -> frozenset[str]:
        """The nodes with results below ``low_edge`` beside others above it, of all GPUs together or of pairs."""
        return frozenset(name for name, rounds in self._readings.items() if self._is_low_at_times(rounds))

    def _is_low_at_times(self, rounds: Iterable[Sequence[NodeReading]]) -> bool:
        by_kind: dict[bool, set[bool]] = {}
        for reading in (reading for own in rounds for reading in own if reading.ratio):
            group = reading.figure.group
            if not group.variant:
                by_kind.setdefault(bool(group.gpus), set()).add(reading.ratio < self.low_edge)
        return {True, False} in by_kind.values()

    def whole(self, but: str) -> Spread:
        """Return the spread of all GPUs of a node together, over all nodes except ``but``."""
        return self._whole("" if self.nodes >= _MANY_NODES else but)

    def pairs(self, but: str) -> Spread:
        """Return the spread of pairs of GPUs, over all nodes except ``but``; few run, so all GPUs show disturbances."""
        return self._pairs("" if self.nodes >= _MANY_NODES else but)

    @functools.lru_cache(maxsize=256)  # noqa: B019 - as many as there are suspects
    def _whole(self, but: str) -> Spread:
        return Spread(self._values(but, of_pairs=False))

    @functools.lru_cache(maxsize=256)  # noqa: B019 - as many as there are suspects
    def _pairs(self, but: str) -> Spread:
        return Spread(self._values(but, of_pairs=True), self._whole(but))

    def _values(self, but: str, *, of_pairs: bool) -> Iterator[float]:
        for name, rounds in self._readings.items():
            for own in rounds if name != but else ():
                group = own[0].figure.group
                if bool(group.gpus) == of_pairs and not group.variant:
                    yield from log_ratios(own)


def _whole(rounds: Iterable[Sequence[NodeReading]]) -> list[NodeReading]:
    """Return the readings of all GPUs of a node together."""
    return [own[0] for own in rounds if not own[0].figure.group.gpus and not own[0].figure.group.variant]


def _slow_edge(medians: Sequence[float]) -> float:
    if len(medians) < _ENOUGH_NODES or max(medians) < 1:
        return SLOW
    return 1 - min(_MOST_SLOW, max(_LEAST_SLOW, _DEVIATIONS * deviation(medians, 1.0)))


def readings_by_node(evidence: Evidence) -> tuple[dict[str, list[list[NodeReading]]], int]:
    """Return the readings of each node by round, and the number of first rounds, which measured every node."""
    rounds = [measured for measured in evidence.rounds if measured.round.scope == "node"]
    readings: dict[str, list[list[NodeReading]]] = {name: [] for name in evidence.fabric.nodes}
    first = _count_first(rounds)
    for number, measured in enumerate(rounds[:first]):
        _add(readings, number, measured, evidence, None)
    spread = NodeSpread({name: own for name, own in readings.items() if own}, evidence.confidence)
    healthy = {name for name, own in readings.items() if _is_healthy(own, spread)}
    for number, measured in enumerate(rounds[first:], first):
        _add(readings, number, measured, evidence, healthy)
    return readings, first


def _count_first(rounds: Sequence[Measured]) -> int:
    """Return how many rounds at the start measured most nodes, all GPUs of each together."""
    for number, measured in enumerate(rounds[:FIRST_ROUNDS]):
        whole = [group for group in measured.round.groups if not group.gpus and not group.variant]
        if number and 2 * len(whole) < len(rounds[0].round.groups):
            return number
    return min(FIRST_ROUNDS, len(rounds))


def _is_healthy(rounds: Iterable[Sequence[NodeReading]], spread: NodeSpread) -> bool:
    whole = _whole(rounds)
    if not whole or statistics.median(reading.ratio for reading in whole) < spread.slow_edge:
        return False
    return all(reading.ratio >= spread.low_edge and not reading.figure.trouble for reading in whole)


def _add(
    readings: Mapping[str, list[list[NodeReading]]],
    number: int,
    measured: Measured,
    evidence: Evidence,
    healthy: set[str] | None,
) -> None:
    """Add one round. ``healthy`` nodes set the normal level; if None, the majority does."""
    figures_by_kind: dict[object, list[GroupResult]] = {}
    for figure in measured.figures:
        group = figure.group
        kind = node_kind(evidence.fabric.nodes[group.nodes[0]], evidence)
        figures_by_kind.setdefault((group.variant, len(group.gpus), kind), []).append(figure)
    own_by_node: dict[str, list[NodeReading]] = {}
    for figures in figures_by_kind.values():
        normal = _normal(figures, evidence, healthy)
        for figure in figures:
            own_by_node.setdefault(figure.group.nodes[0], []).append(NodeReading(number, figure, normal))
    for name, own in own_by_node.items():
        readings[name].append(own)


def _normal(figures: Sequence[GroupResult], evidence: Evidence, healthy: set[str] | None) -> float | None:
    """Return what comparable groups should reach: as their peers, else as expected, else as the better half."""
    peers = [f.gb_per_s for f in figures if f.gb_per_s is not None and (healthy is None or f.group.nodes[0] in healthy)]
    if len(peers) >= (3 if healthy is None else 1):
        return statistics.median(peers)
    expected = [evidence.expected[f.group] for f in figures if f.group in evidence.expected]
    if expected:
        return min(expected)
    values = sorted(f.gb_per_s for f in figures if f.gb_per_s is not None)
    return statistics.median(values[len(values) // 2 :]) if len(values) > 1 else None
