"""Readings: each figure against what like figures give, so that what is healthy is learnt from the fleet itself."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.parts import Part
from gpuops.isolation.rounds import GroupResult, RankGroup

LEAST_TOLERANCE = 0.05
"""A figure that is 5 % below its like is slow (superbench, user-tutorial/data-diagnosis.md) ..."""
_DEVIATIONS = 2.5
"""... or further below, where the fleet scatters so much that healthy figures are: this many standard deviations."""
_MOST_TOLERANCE = 0.2
_ENOUGH_TO_SCATTER = 24
_CLEAR_DEVIATIONS = 3.5
_FINEST = 0.01
"""Two figures that the same part slows differ by noise alone: by the usual bound of a robust z-score, or 1 %."""
LINE_EFFICIENCY = 0.95
"""What of the line rate a pair reaches at least, with every algorithm."""
_ENOUGH_ALIKE = 3
"""Of fewer like figures in a round, the best of all rounds are the measure ..."""
_FEW = 64
"""... where rounds are so small that it can be."""
_SAME_KIND = 0.9
"""Like figures of two rounds differ by less, unless most of one round's passed what is slow."""
_SAME_ROAD = 0.97
"""Like figures that are at least this share of the best of all are limited by the line, not by oversubscription."""

Like = tuple[object, ...]


class Reading(NamedTuple):
    """A figure as a share of what is healthy; 0 where it came to nothing.

    ``share`` is of like figures in the same round. ``line`` is of the best that any such NIC gives, which a transfer
    across an oversubscribed spine does not reach; a part on its way is at least that good.
    """

    at: int
    figure: GroupResult
    share: float
    line: float


class _Survey(NamedTuple):
    """Like figures of one round: their healthy level in GB/s, their relative standard deviation, those well below it.

    ``some`` of them came to something.
    """

    level: float
    deviation: float
    some: int
    low: tuple[GroupResult, ...]
    figures: Sequence[GroupResult]


class Readings:
    """All readings of ``evidence``.

    ``tolerance`` is how far below the level a healthy figure may be, as a share of it; ``fine_tolerance`` how far below
    one another two may be that the same part slows, which is for noise alone.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.fabric = evidence.fabric
        self._evidence = evidence
        self._surveys = [_survey(measured, evidence.fabric) for measured in evidence.rounds]
        kinds = {kind for surveys in self._surveys for kind in surveys}
        self._most = {kind: max(len(s[kind].figures) for s in self._surveys if kind in s) for kind in kinds}
        self._best = self._best_levels()
        self.tolerance, self.fine_tolerance = self._tolerances()

    def _best_levels(self) -> dict[Like, float]:
        """The best level of each kind of figure, whether it crosses units or not, over rounds that measured most nodes.

        Where no round had enough of them, the best of all rounds are what is healthy.
        """
        best: dict[Like, float] = {}
        pooled: dict[Like, list[float]] = {}
        for measured, surveys in zip(self._evidence.rounds, self._surveys, strict=True):
            for kind, survey in surveys.items():
                if self._sets_measure(kind, survey):
                    for known in (kind, kind[:-1]):
                        best[known] = max(survey.level, best.get(known, 0.0))
            for figure in measured.figures if len(measured.figures) <= _FEW else ():
                if figure.gb_per_s:
                    pooled.setdefault(like(figure.group, self.fabric)[:-1], []).append(figure.gb_per_s)
        best = {kind: _about(sorted(values), max(values)) for kind, values in pooled.items()} | best
        return best | dict(self._line_rates(best))

    def _line_rates(self, best: dict[Like, float]) -> Iterator[tuple[Like, float]]:
        """Line rate as the measure inside units that are at odds, where even the best are far below it."""
        for surveys in self._surveys:
            for kind, survey in surveys.items():
                scope, rate, *_, crosses = kind
                at_odds = 4 * len(survey.low) > len(survey.figures) and self._sets_measure(kind, survey)
                inside = scope == "rail" and not crosses
                if isinstance(rate, float) and inside and at_odds and best[kind] < _SAME_KIND * rate:
                    yield from ((like, LINE_EFFICIENCY * rate) for like in (kind, kind[:-1]))

    def _tolerances(self) -> tuple[float, float]:
        """As much as noise asks for, within bounds; too few figures do not tell how much that is."""
        surveys = (survey for found in self._surveys for survey in found.values())
        scatter = [survey.deviation for survey in surveys if survey.some >= _ENOUGH_TO_SCATTER]
        deviation = statistics.median(scatter or [LEAST_TOLERANCE / _DEVIATIONS])
        tolerance = min(max(LEAST_TOLERANCE, _DEVIATIONS * deviation), _MOST_TOLERANCE)
        return tolerance, min(tolerance, max(_FINEST, _CLEAR_DEVIATIONS * deviation))

    def reading(self, at: int, figure: GroupResult) -> Reading | None:
        """``figure`` of round ``at`` beside its like; None where it says nothing of speed or parts."""
        if figure.trouble == "error":
            return None
        if figure.trouble or not figure.gb_per_s:
            return Reading(at, figure, 0.0, 0.0)
        level, line = self._levels[at][like(figure.group, self.fabric)]
        return Reading(at, figure, figure.gb_per_s / level, figure.gb_per_s / line)

    @functools.cached_property
    def _levels(self) -> list[dict[Like, tuple[float, float]]]:
        """What like figures give in each round, and what they would give at line rate, in GB/s."""
        return [{kind: self._level(kind, survey) for kind, survey in found.items()} for found in self._surveys]

    def _level(self, kind: Like, survey: _Survey) -> tuple[float, float]:
        best = self._best.get(kind[:-1], 0.0)
        level = best
        if self._sets_measure(kind, survey):
            level = survey.level if survey.level >= _SAME_KIND * self._best[kind] else self._best[kind]
        return level, level if level >= _SAME_ROAD * best else best

    def _sets_measure(self, kind: Like, survey: _Survey) -> bool:
        """Whether the figures are many: those of a few suspects and their partners are no measure."""
        return survey.some >= _ENOUGH_ALIKE and 2 * len(survey.figures) >= self._most[kind]

    def is_slow(self, reading: Reading) -> bool:
        """Whether it is slower than its like in the same round; what hangs is."""
        return reading.share < 1 - self.tolerance

    @functools.cached_property
    def slow(self) -> list[Reading]:
        """Every slow reading of a node or pair, in the order of rounds."""
        found = []
        for at, surveys in enumerate(self._surveys):
            if self._evidence.rounds[at].round.scope == "group":
                continue
            for kind, survey in surveys.items():
                own = self._levels[at][kind][0] == survey.level
                figures = survey.low if own else survey.figures
                found += [r for figure in figures if (r := self.reading(at, figure)) and self.is_slow(r)]
        return found

    @functools.cached_property
    def transfers(self) -> int:
        """How many figures of rails there are."""
        return sum(len(measured.figures) for measured in self._evidence.rounds if measured.round.scope == "rail")

    def of(self, part: Part) -> Iterator[Reading]:
        """Every reading of a figure that passed ``part``, pairs and single nodes only."""
        ports = self._ports(part)
        for at, measured in enumerate(self._evidence.rounds):
            if measured.round.scope == "group":
                continue
            places = measured.round.places
            for place in sorted({place for port in ports for place in places.get(port, ())}):
                figure = measured.figures[place]
                if part.passed_by(figure, self.fabric) and (reading := self.reading(at, figure)) is not None:
                    yield reading

    def width(self, part: Part) -> int:
        """How many ports share ``part``."""
        if part.kind == "leaf":
            return len(self.fabric.ports_of[part.owner])
        if part.kind == "uplink":
            return len(self.fabric.units[part.owner])
        return len(self.fabric.nodes[part.owner].nics) if part.kind == "node" else 1

    def _ports(self, part: Part) -> Sequence[tuple[str, int | None]]:
        if part.kind == "leaf":
            return self.fabric.ports_of[part.owner]
        if part.kind == "uplink":
            return [(node, part.number) for node in self.fabric.units[part.owner]]
        if part.kind == "node":
            return [(part.owner, None), *((part.owner, nic.rail) for nic in self.fabric.nodes[part.owner].nics)]
        return [(part.owner, part.number if part.kind == "nic" else None)]


@functools.lru_cache(maxsize=48)
def _survey(measured: Measured, fabric: Fabric) -> dict[Like, _Survey]:
    alike: dict[Like, list[GroupResult]] = {}
    for figure in measured.figures:
        alike.setdefault(like(figure.group, fabric), []).append(figure)
    return {kind: _surveyed(figures) for kind, figures in alike.items()}


def _surveyed(figures: Sequence[GroupResult]) -> _Survey:
    values = sorted(figure.gb_per_s for figure in figures if figure.gb_per_s and not figure.trouble)
    if not values:
        return _Survey(0.0, 0.0, 0, tuple(figures), figures)
    level = _level(values)
    deviation = 1.4826 * statistics.median(
        value / level - 1 for value in values if value >= level
    )  # nothing is too fast
    edge = (1 - LEAST_TOLERANCE) * level
    low = tuple(figure for figure in figures if figure.trouble or (figure.gb_per_s or 0.0) < edge)
    return _Survey(level, deviation, len(values), low, figures)


def _level(ordered: Sequence[float]) -> float:
    """What is healthy: the median of the figures about the upper quartile, so that up to three in four may be slow."""
    return _about(ordered, ordered[-(-3 * (len(ordered) - 1) // 4)])


def _about(ordered: Sequence[float], value: float) -> float:
    """The median of the figures that are within 6 % of ``value``."""
    return statistics.median(figure for figure in ordered if 0.94 * value <= figure <= 1.06 * value)


def like(group: RankGroup, fabric: Fabric) -> Like:
    """What must agree between two groups, so that healthy ones give the same; the last: whether it crosses blocks."""
    if len(group.nodes) == 1:
        gpus = len(group.gpus) or len(fabric.nodes[group.nodes[0]].gpus)
        return ("node", gpus, group.variant, False)
    crosses = len(set(map(fabric.block_of.__getitem__, group.nodes))) > 1
    if group.rail is None:
        sizes = tuple(sorted((len(fabric.nodes[name].gpus), len(fabric.nodes[name].nics)) for name in group.nodes))
        return ("pair", sizes if len(group.nodes) == 2 else len(sizes), crosses)
    return ("rail", min(fabric.rates[name, group.rail] for name in group.nodes), crosses)


def partners(readings: Sequence[Reading], owner: str) -> Iterator[str]:
    """The other nodes of each reading."""
    yield from (node for reading in readings for node in reading.figure.group.nodes if node != owner)
