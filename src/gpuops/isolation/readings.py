"""Readings: each figure against what like figures give, so that what is healthy is learnt from the fleet itself."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.parts import Part
from gpuops.isolation.rounds import Figure, Group

LEAST_TOLERANCE = 0.05
"""A figure that is 5 % below its like is slow (superbench, user-tutorial/data-diagnosis.md) ..."""
_DEVIATIONS = 2.5
"""... or further below, where the fleet scatters so much that healthy figures are: this many standard deviations."""
_MOST_TOLERANCE = 0.2
_ENOUGH_ALIKE = 3
_FEW = 64
_SAME_KIND = 0.9
_SAME_ROAD = 0.97
"""Like figures that are at least this share of the best of all are limited by the line, not by oversubscription."""

Like = tuple[object, ...]


class Reading(NamedTuple):
    """A figure as a share of what is healthy; 0 where it came to nothing.

    ``share`` is of like figures in the same round. ``line`` is of the best that any such NIC gives, which a transfer
    across an oversubscribed spine does not reach; a part on its way is at least that good.
    """

    at: int
    figure: Figure
    share: float
    line: float


class _Survey(NamedTuple):
    """Like figures of one round: their healthy level in GB/s, their relative deviation, those clearly below it.

    ``some`` of them came to something.
    """

    level: float
    deviation: float
    some: int
    low: tuple[Figure, ...]
    figures: Sequence[Figure]


class Readings:
    """All readings of ``evidence``. ``tolerance`` is how far below the level a healthy figure may be."""

    def __init__(self, evidence: Evidence) -> None:
        self.fabric = evidence.fabric
        self._evidence = evidence
        self._surveys = [_survey(measured, evidence.fabric) for measured in evidence.rounds]
        kinds = {kind for surveys in self._surveys for kind in surveys}
        self._most = {kind: max(len(s[kind].figures) for s in self._surveys if kind in s) for kind in kinds}
        self._best = self._best_levels()
        self.tolerance = self._tolerance()

    def _best_levels(self) -> dict[Like, float]:
        """The best level of each kind of figure, whether it crosses units or not, over rounds that measured most nodes.

        Where no round had enough of them, all rounds together have.
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
        return {kind: _level(sorted(values)) for kind, values in pooled.items()} | best

    def _tolerance(self) -> float:
        deviations = [
            survey.deviation for surveys in self._surveys for survey in surveys.values() if survey.some > _ENOUGH_ALIKE
        ]
        return min(max(LEAST_TOLERANCE, _DEVIATIONS * min(deviations, default=0.0)), _MOST_TOLERANCE)

    def reading(self, at: int, figure: Figure) -> Reading | None:
        """``figure`` of round ``at`` beside its like; None where it says nothing of speed or parts."""
        if figure.trouble == "error":
            return None
        if figure.trouble or not figure.gb_per_s:
            return Reading(at, figure, 0.0, 0.0)
        kind = like(figure.group, self.fabric)
        best = self._best.get(kind[:-1], figure.gb_per_s)
        own = self._surveys[at][kind]
        usual = self._best.get(kind, best)
        level = (
            own.level
            if self._sets_measure(kind, own) and own.level >= _SAME_KIND * usual
            else usual
            if self._sets_measure(kind, own)
            else best
        )
        line = level if level >= _SAME_ROAD * best else best
        return Reading(at, figure, figure.gb_per_s / level, figure.gb_per_s / line)

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
                figures = survey.low if self._sets_measure(kind, survey) else survey.figures
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
    alike: dict[Like, list[Figure]] = {}
    for figure in measured.figures:
        alike.setdefault(like(figure.group, fabric), []).append(figure)
    return {kind: _surveyed(figures) for kind, figures in alike.items()}


def _surveyed(figures: Sequence[Figure]) -> _Survey:
    values = sorted(figure.gb_per_s for figure in figures if figure.gb_per_s and not figure.trouble)
    if not values:
        return _Survey(0.0, 0.0, 0, tuple(figures), figures)
    level = _level(values)
    deviation = 1.4826 * statistics.median(abs(value / level - 1) for value in values)
    edge = (1 - LEAST_TOLERANCE) * level
    low = tuple(figure for figure in figures if figure.trouble or (figure.gb_per_s or 0.0) < edge)
    return _Survey(level, deviation, len(values), low, figures)


def _level(ordered: Sequence[float]) -> float:
    """What is healthy: the median of the figures about the upper quartile, so that up to three in four may be slow."""
    quartile = ordered[-(-3 * (len(ordered) - 1) // 4)]
    return statistics.median(value for value in ordered if 0.94 * quartile <= value <= 1.06 * quartile)


def like(group: Group, fabric: Fabric) -> Like:
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
