"""Results next to comparable results, so that the healthy level is learnt from the cluster itself."""

from __future__ import annotations

import bisect
import functools
import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.links import fits, loads_of, shared_links
from gpuops.isolation.parts import Part, PartKind
from gpuops.isolation.rounds import GroupResult, RankGroup

MIN_TOLERANCE = 0.05
"""A result that is 5 % below comparable ones is slow (superbench, user-tutorial/data-diagnosis.md) ..."""
_DEVIATIONS = 2.5
"""... or this many standard deviations below, if healthy results scatter more than that."""
_MAX_TOLERANCE = 0.2
_ENOUGH_TO_SCATTER = 24
_CLEAR_DEVIATIONS = 3.5
_FINEST = 0.01
"""Two results that the same part slows differ by noise alone: by the usual bound of a robust z-score, or 1 %."""
LINE_EFFICIENCY = 0.95
"""The minimum fraction of the line rate that a pair reaches, with every algorithm."""
_ENOUGH_COMPARABLE = 3
"""If a round has fewer comparable results than this, the best of all rounds set the level ..."""
_FEW = 64
"""... in rounds of at most this many results."""
_SAME_KIND = 0.9
"""Comparable results of two rounds differ by less, unless most of one round's crossed a slow part."""
_LEAF_LEAST = 0.01
"""A leaf whose better transfers are slower than this is a measure of its own for the NICs behind it."""
_MAX_COLLIDING = 0.15
"""Where more of the transfers between units are slow than this, they may slow one another."""
_ENOUGH_CONTROLS, _WARM = 6, 0.85
"""So many results of a round of suspects and controls show what that round allows, if it is at least this much."""
_LINE_LIMITED = 0.97
"""Results that reach this fraction of the best are limited by the line rate, not by oversubscription."""

FigureKind = tuple[object, ...]


class Reading(NamedTuple):
    """A result as a fraction of the healthy level; 0 if it failed.

    ``ratio`` compares it with the healthy level of the same round. ``at_line_rate`` compares it with the best that any
    such NIC reaches, which a transfer across an oversubscribed spine does not; each crossed part is at least that good.
    """

    round_index: int
    figure: GroupResult
    ratio: float
    at_line_rate: float


class _Survey(NamedTuple):
    """Comparable results of one round: their healthy level in GB/s, relative standard deviation, and those well below.

    ``succeeded`` counts those that have a bandwidth.
    """

    level: float
    deviation: float
    succeeded: int
    low: tuple[GroupResult, ...]
    figures: Sequence[GroupResult]


class Readings:
    """All readings of ``evidence``.

    ``tolerance`` is how far a healthy result may be below the level, as a fraction of it. ``fine_tolerance`` is how far
    two results that the same part slows may be apart, which covers noise alone: its standard ``deviation``.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.fabric = evidence.fabric
        self._evidence = evidence
        self._surveys = [_survey(measured, evidence.fabric) for measured in evidence.rounds]
        kinds = {kind for surveys in self._surveys for kind in surveys}
        self._max_figures = {kind: max(len(s[kind].figures) for s in self._surveys if kind in s) for kind in kinds}
        self._best = self._best_levels()
        self.deviation = self._deviation()
        self.tolerance = min(max(MIN_TOLERANCE, _DEVIATIONS * self.deviation), _MAX_TOLERANCE)
        self.fine_tolerance = min(self.tolerance, max(_FINEST, _CLEAR_DEVIATIONS * self.deviation))

    def _best_levels(self) -> dict[FigureKind, float]:
        """Return the best level of each kind of result, over rounds that measured most nodes.

        It is kept for results that cross units, for those that do not, and for both. If no round had enough of a kind,
        the best of all rounds set its level.
        """
        best_levels: dict[FigureKind, float] = {}
        pooled_rates: dict[FigureKind, list[float]] = {}
        for measured, surveys in zip(self._evidence.rounds, self._surveys, strict=True):
            for kind, survey in surveys.items():
                if self._sets_level(kind, survey):
                    for key in (kind, kind[:-1]):
                        best_levels[key] = max(survey.level, best_levels.get(key, 0.0))
            for figure in measured.figures if len(measured.figures) <= _FEW else ():
                if figure.gb_per_s:
                    pooled_rates.setdefault(kind_of(figure.group, self.fabric)[:-1], []).append(figure.gb_per_s)
        best_levels = {kind: _about(sorted(values), max(values)) for kind, values in pooled_rates.items()} | best_levels
        return best_levels | dict(self._line_rates(best_levels))

    def _line_rates(self, best_levels: dict[FigureKind, float]) -> Iterator[tuple[FigureKind, float]]:
        """Yield the line rate as the level inside units whose results disagree, if even the best are far below it."""
        for surveys in self._surveys:
            for kind, survey in surveys.items():
                scope, rate, *_, crosses = kind
                disagree = 4 * len(survey.low) > len(survey.figures) and self._sets_level(kind, survey)
                is_inside = scope == "rail" and not crosses
                if isinstance(rate, float) and is_inside and disagree and best_levels[kind] < _SAME_KIND * rate:
                    yield from ((key, LINE_EFFICIENCY * rate) for key in (kind, kind[:-1]))

    def _deviation(self) -> float:
        """Return the relative standard deviation of healthy results; too few results do not show it."""
        surveys = (survey for surveys_of_round in self._surveys for survey in surveys_of_round.values())
        deviations = [survey.deviation for survey in surveys if survey.succeeded >= _ENOUGH_TO_SCATTER]
        return statistics.median(deviations or [MIN_TOLERANCE / _DEVIATIONS])

    def reading(self, round_index: int, figure: GroupResult) -> Reading:
        """Compare ``figure`` of round ``round_index`` with others."""
        return self._reading(round_index, figure, kind_of(figure.group, self.fabric))

    def _reading(self, round_index: int, figure: GroupResult, kind: FigureKind) -> Reading:
        if figure.trouble or not figure.gb_per_s:
            return Reading(round_index, figure, 0.0, 0.0)
        level, line_level = self._levels[round_index][kind]
        return Reading(round_index, figure, figure.gb_per_s / level, figure.gb_per_s / line_level)

    @functools.cached_property
    def _by_round(self) -> list[Sequence[Reading]]:
        """The readings of each round in the order of its groups; none of groups of more nodes."""
        return [
            [
                self._reading(round_index, figure, kind)
                for figure, kind in zip(measured.figures, _kinds(measured, self.fabric), strict=True)
            ]
            if measured.round.scope != "group"
            else ()
            for round_index, measured in enumerate(self._evidence.rounds)
        ]

    @functools.cached_property
    def _levels(self) -> list[dict[FigureKind, tuple[float, float]]]:
        """The level of each kind of result in each round, and its level at line rate, in GB/s."""
        return [{kind: self._level(kind, survey) for kind, survey in surveys.items()} for surveys in self._surveys]

    def _level(self, kind: FigureKind, survey: _Survey) -> tuple[float, float]:
        best = self._best.get(kind[:-1], 0.0)
        if not self._sets_level(
            kind, survey
        ):  # few run at once, so that nothing but drift is between them and the best
            is_near = survey.succeeded >= _ENOUGH_CONTROLS and survey.level >= _WARM * best
            return (survey.level,) * 2 if is_near else (best, best)
        level = survey.level if survey.level >= _SAME_KIND * self._best[kind] else self._best[kind]
        return level, level if level >= _LINE_LIMITED * best else best

    def _sets_level(self, kind: FigureKind, survey: _Survey) -> bool:
        """Return True if the results are enough to set a level; those of a few suspects and their partners are not."""
        return survey.succeeded >= _ENOUGH_COMPARABLE and 2 * len(survey.figures) >= self._max_figures[kind]

    def is_slow(self, reading: Reading) -> bool:
        """Return True if it is slower than the healthy level of its round, or hangs."""
        return reading.ratio < 1 - self.tolerance

    @functools.cached_property
    def slow(self) -> list[Reading]:
        """Every slow reading of a node or pair, in the order of rounds."""
        slow_readings = []
        for round_index, surveys in enumerate(self._surveys):
            if self._evidence.rounds[round_index].round.scope == "group":
                continue
            for kind, survey in surveys.items():
                is_own_level = self._levels[round_index][kind][0] == survey.level
                figures = survey.low if is_own_level else survey.figures
                readings = (self.reading(round_index, figure) for figure in figures)
                slow_readings += [reading for reading in readings if self.is_slow(reading)]
        return slow_readings

    def inside(self) -> Iterator[Reading]:
        """Yield every reading of a single node."""
        for measured, readings in zip(self._evidence.rounds, self._by_round, strict=True):
            if measured.round.scope != "group":
                yield from (reading for reading in readings if len(reading.figure.group.nodes) == 1)

    @functools.cached_property
    def between(self) -> list[Reading]:
        """Every reading of a pair of nodes, on rails or with all GPUs."""
        rounds = zip(self._evidence.rounds, self._by_round, strict=True)
        return [r for measured, readings in rounds if measured.round.scope in {"rail", "pair"} for r in readings]

    def is_alone(self, reading: Reading) -> bool:
        """Return True if it shares no link with other transfers of its round: it stays in its unit, or is alone on it.

        Transfers that share links to the spine may slow one another on a healthy fabric: by oversubscription, because
        static routes collide, or because flows are hashed onto one link.
        """
        links = shared_links(reading.figure.group, self.fabric)
        if not links:
            return True
        loads = loads_of(self._evidence.rounds[reading.round_index], self.fabric)
        return fits({link: loads[link] for link in links}, self.fabric)

    def is_undisturbed(self, reading: Reading) -> bool:
        """Return True if others of its round did not slow it: it is alone, or hardly any that cross units were slow."""
        return self.is_alone(reading) or self._have_room[reading.round_index]

    @functools.cached_property
    def _have_room(self) -> list[bool]:
        """By round, True if transfers between units do not slow one another: they reach the line rate, few are slow."""
        rooms = []
        for index, levels in enumerate(self._levels):
            at_line_rate = all(level >= line for kind, (level, line) in levels.items() if _is_crossing(kind))
            rooms.append(at_line_rate and self.slow_shares.get(index, 0.0) <= _MAX_COLLIDING)
        return rooms

    @property
    def are_crowded(self) -> bool:
        """True if many transfers between units are slower than others of their round, so that they may collide."""
        return any(share > _MAX_COLLIDING for share in self.slow_shares.values())

    @functools.cached_property
    def slow_shares(self) -> dict[int, float]:
        """The share of slow results among those between units on rails, by round; rounds without any are absent."""
        slow = Counter(r.round_index for r in self.slow if r.ratio and self.crosses(r))
        return {
            index: slow[index] / count
            for index, surveys in enumerate(self._surveys)
            if (count := sum(survey.succeeded for kind, survey in surveys.items() if _is_crossing(kind)))
        }

    def leaf_level(self, nic: Part) -> float:
        """Return what the better ports of a NIC's leaf reach with their better partners; 1 if it is healthy or unknown.

        A NIC is compared with it, because a leaf that is a little slow makes each NIC behind it look slow.
        """
        return self._leaf_levels.get(self.fabric.leaf_of.get((nic.owner, nic.number), ""), 1.0)

    @functools.cached_property
    def _leaf_levels(self) -> dict[str, float]:
        """The level of each leaf that is a little slow, as two pairs without a common port show it."""
        pairs_by_leaf: dict[str, dict[frozenset[tuple[str, int]], float]] = {}
        for pair, ratios in self._ratios_of_pairs.items():
            for leaf in {self.fabric.leaf_of.get(port, "") for port in pair}:
                pairs_by_leaf.setdefault(leaf, {})[pair] = statistics.median(ratios)
        levels: dict[str, float] = {}
        for leaf, pairs in pairs_by_leaf.items():
            level = self._leaf_level(leaf, pairs)
            near = [pair for pair, ratio in pairs.items() if abs(ratio - level) <= self.tolerance]
            if leaf and level < 1 - _LEAF_LEAST and _have_no_common_port(near):
                levels[leaf] = level
        return levels

    def _leaf_level(self, leaf: str, pairs: Mapping[frozenset[tuple[str, int]], float]) -> float:
        """Return what the better ports of ``leaf`` reach with their better partners; 1 if few show it."""
        ports: dict[tuple[str, int], list[float]] = {}
        for pair, ratio in pairs.items():
            for port in pair:
                if self.fabric.leaf_of.get(port, "") == leaf:
                    ports.setdefault(port, []).append(ratio)
        own = sorted(upper_quartile(sorted(usual)) for usual in ports.values())
        return upper_quartile(own) if len(own) >= _ENOUGH_COMPARABLE else 1.0

    @functools.cached_property
    def _ratios_of_pairs(self) -> dict[frozenset[tuple[str, int]], list[float]]:
        """What each pair of ports reaches where that tells of its leaf, so that no suspect counts more often."""
        ratios: dict[frozenset[tuple[str, int]], list[float]] = {}
        for reading in self.between:
            group = reading.figure.group
            if group.rail is not None and reading.ratio and self.is_evidence("leaf", reading):
                ports = frozenset((node, group.rail) for node in group.nodes)
                ratios.setdefault(ports, []).append(reading.ratio)
        return ratios

    def is_evidence(self, kind: PartKind, reading: Reading) -> bool:
        """Return True if the reading tells what a part of this kind can do; no load makes a transfer fail.

        A transfer to another unit also tells of its path, so it counts for a node only if its unit has no other node.
        """
        crosses = self.crosses(reading)
        if kind == "uplink":
            return crosses and (not reading.ratio or self.is_undisturbed(reading))
        if not reading.ratio:
            return True
        return self.is_undisturbed(reading) and (not crosses or self._is_of_lone_node(reading))

    def _is_of_lone_node(self, reading: Reading) -> bool:
        fabric = self.fabric
        return any(len(fabric.units.get(fabric.unit_of.get(node, ""), "")) == 1 for node in reading.figure.group.nodes)

    def crosses(self, reading: Reading) -> bool:
        """Return True if it leaves its unit, as far as units are known."""
        units = {self.fabric.unit_of.get(node) for node in reading.figure.group.nodes}
        return len(units - {None}) > 1

    @functools.cached_property
    def transfers(self) -> int:
        """The number of results on rails."""
        return sum(len(measured.figures) for measured in self._evidence.rounds if measured.round.scope == "rail")

    def of(self, part: Part) -> Iterator[Reading]:
        """Yield every reading of a result that crossed ``part``, pairs and single nodes only."""
        ports = self._ports(part)
        for round_index, measured in enumerate(self._evidence.rounds):
            if measured.round.scope == "group":
                continue
            indices_by_port = measured.round.group_indices
            for index in sorted({index for port in ports for index in indices_by_port.get(port, ())}):
                if part.crossed_by(measured.figures[index], self.fabric):
                    yield self._by_round[round_index][index]

    def width(self, part: Part) -> int:
        """Return how many ports share ``part``."""
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


def _have_no_common_port(pairs: Iterable[frozenset[tuple[str, int]]]) -> bool:
    """Return True if two of the pairs share no port: else one port may be what they have in common."""
    return any(one.isdisjoint(other) for one, other in itertools.combinations(pairs, 2))


@functools.lru_cache(maxsize=48)
def _survey(measured: Measured, fabric: Fabric) -> dict[FigureKind, _Survey]:
    figures_by_kind: dict[FigureKind, list[GroupResult]] = {}
    for figure, kind in zip(measured.figures, _kinds(measured, fabric), strict=True):
        figures_by_kind.setdefault(kind, []).append(figure)
    return {kind: _survey_of(figures) for kind, figures in figures_by_kind.items()}


@functools.lru_cache(maxsize=48)
def _kinds(measured: Measured, fabric: Fabric) -> Sequence[FigureKind]:
    """Return the kind of each figure."""
    return [kind_of(figure.group, fabric) for figure in measured.figures]


def _survey_of(figures: Sequence[GroupResult]) -> _Survey:
    values = sorted(figure.gb_per_s for figure in figures if figure.gb_per_s and not figure.trouble)
    if not values:
        return _Survey(0.0, 0.0, 0, tuple(figures), figures)
    level = level_of(values)
    edge = (1 - MIN_TOLERANCE) * level
    low = tuple(figure for figure in figures if figure.trouble or (figure.gb_per_s or 0.0) < edge)
    return _Survey(level, deviation(values, level), len(values), low, figures)


def level_of(ordered: Sequence[float]) -> float:
    """Return the healthy level of sorted values: the median about the upper quartile; three in four may be slow."""
    return _about(ordered, upper_quartile(ordered))


def upper_quartile(ordered: Sequence[float]) -> float:
    """Return the upper quartile of sorted values."""
    return ordered[-(-3 * (len(ordered) - 1) // 4)]


def deviation(values: Iterable[float], level: float) -> float:
    """Return the relative standard deviation of healthy values, from those above the level: nothing is too fast."""
    return 1.4826 * statistics.median(value / level - 1 for value in values if value >= level)


def _about(ordered: Sequence[float], value: float) -> float:
    """Return the median of the sorted values within 6 % of ``value``."""
    near = ordered[bisect.bisect_left(ordered, 0.94 * value) : bisect.bisect_right(ordered, 1.06 * value)]
    return (near[len(near) // 2] + near[(len(near) - 1) // 2]) / 2


def kind_of(group: RankGroup, fabric: Fabric) -> FigureKind:
    """Return the kind of a group; healthy groups of one kind reach the same. Last item: whether it crosses blocks."""
    if len(group.nodes) == 1:
        gpus = len(group.gpus) or len(fabric.nodes[group.nodes[0]].gpus)
        return ("node", gpus, group.variant, False)
    crosses = fabric.leaves_block(group.nodes)
    if group.rail is None:
        sizes = tuple(sorted((len(fabric.nodes[name].gpus), fabric.node_rates[name]) for name in group.nodes))
        return ("pair", sizes if len(group.nodes) == 2 else len(sizes), crosses)
    return ("rail", min(fabric.rates[name, group.rail] for name in group.nodes), crosses)


def _is_crossing(kind: FigureKind) -> bool:
    return kind[0] == "rail" and bool(kind[-1])
