"""The results of groups so far, as the search for stragglers and the report see them."""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.groups.dealing import Nodes, even_groups, max_left_out
from gpuops.isolation.groups.readings import GroupReading, GroupReadings, slowest_rate
from gpuops.isolation.groups.stragglers import LIKELY, Stragglers
from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.isolation.spread import bound

_SLOW = 0.85
"""Below this fraction of what smaller groups reached, a large one is slow: it may use another algorithm."""
_LOSS_BY_DOUBLING = 0.015
"""A healthy group may lose this fraction with each doubling of its nodes; more is worth a few rounds.

An assumption: with large messages no loss is published (NVIDIA/nccl issue 1712: basically the same; HGX H100 with
InfiniBand: 365.8 GB/s on 4 nodes in nccl-tests issue 309, 386.6 GB/s on 8 in coreweave/nccl-tests)."""
_SLOW_UNIT = math.log(0.9)
"""A unit is slow below this fraction of other units: with all of its nodes its leaves may be."""


class SlowUnit(NamedTuple):
    """The results of a unit that is slow with all of its nodes, and the bound on the chance that a healthy one is."""

    group: RankGroup
    readings: tuple[GroupReading, ...]
    probability: float


class GroupView:
    """The rounds of groups so far: of units, of even groups, of all nodes, and of the searches."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.fabric = evidence, evidence.fabric
        self.rounds = tuple(measured for measured in evidence.rounds if measured.round.scope == "group")
        self.readings = group_readings(self.fabric, evidence.rounds)
        several = [measured.round.groups for measured in self.rounds if len(measured.round.groups) > 1]
        single = [measured.round.groups[0] for measured in self.rounds if len(measured.round.groups) == 1]
        self.units: Sequence[RankGroup] = several[0] if several else ()
        self.whole = single[0] if single else None
        first = self.rounds[0].round.groups if self.rounds else ()
        names = {name for group in first for name in group.nodes}
        self.bases = even_groups([tuple(name for name in block if name in names) for block in self.fabric.blocks])

    def runs(self, group: RankGroup) -> list[GroupResult]:
        """Return the results of exactly this group."""
        return [figure for measured in self.rounds for figure in measured.figures if figure.group == group]

    @functools.cached_property
    def halves(self) -> tuple[Nodes, ...]:
        """The halves of the whole; none if the even groups are as large."""
        nodes = self.whole.nodes if self.whole else ()
        halves = (nodes[: len(nodes) // 2], nodes[len(nodes) // 2 :])
        return halves if len(self.bases) > 2 else ()

    @functools.cached_property
    def are_halves_searched(self) -> bool:
        """True if the halves of the whole were measured."""
        return bool(self.halves) and bool(self.runs(RankGroup(self.halves[0])))

    @functools.cached_property
    def stragglers(self) -> Stragglers:
        """The stragglers of the even groups; if there are none, those of the halves."""
        small = self._stragglers(self.bases)
        return self._stragglers(self.halves) if self.are_halves_searched and not (small.sure or small.open) else small

    def _stragglers(self, bases: Sequence[Nodes]) -> Stragglers:
        size = max(map(len, bases))
        least = size - max_left_out(size) if len(bases) == 1 else math.ceil(size * 3 / 4)
        return _stragglers(self.fabric, self.evidence.rounds, least, self.evidence.confidence)

    @functools.cached_property
    def slow_units(self) -> tuple[SlowUnit, ...]:
        """The units that are slower than others with all of their nodes, except because of a straggler."""
        blocks = Counter(self.fabric.block_of[name] for unit in self.units for name in unit.nodes[:1])
        readings: dict[RankGroup, list[GroupReading]] = {}
        for reading in self.readings.all:
            if reading.figure.group in self.units and not reading.load:
                readings.setdefault(reading.figure.group, []).append(reading)
        spread = self.readings.spread([reading for own in readings.values() for reading in own])
        slow = []
        for unit, own in readings.items():
            is_whole = blocks[self.fabric.block_of[unit.nodes[0]]] == 1
            values = [reading.u for reading in own]
            if is_whole and statistics.median(values) < _SLOW_UNIT and self.stragglers.nodes.isdisjoint(unit.nodes):
                log_e = spread.certainty(values).log_e
                if log_e > LIKELY:
                    slow.append(SlowUnit(unit, tuple(own), bound(log_e, len(self.units))))
        return tuple(slow)

    def normal(self, group: RankGroup) -> tuple[float, int]:
        """Return the best GB/s of other groups, as far as its slowest NICs allow, and how many nodes that group has."""
        own = slowest_rate(group, self.fabric)
        others = []
        for figure in (f for m in self.rounds for f in m.figures if f.group != group):
            rate = slowest_rate(figure.group, self.fabric)  # 0 if it is unknown
            allowed = min(1.0, own / rate) if own and rate else 1.0
            others.append((allowed * (figure.gb_per_s or 0.0), len(figure.group.nodes)))
        return max((other for other in others if other[1] > 2), default=(0.0, len(group.nodes)))

    def is_below_its_size(self, group: RankGroup) -> bool:
        """Return True if it is slower than smaller groups by more than its size explains, or fails."""
        normal, size = self.normal(group)
        doublings = math.log2(max(1.0, len(group.nodes) / size))
        least = normal * (1 - _LOSS_BY_DOUBLING * doublings + self.readings.edge / 2)
        return self.best(group) < least

    def is_slow(self, group: RankGroup) -> bool:
        """Return True if it fails, or is slower than expected, or much slower than others if nothing is expected."""
        least = self.evidence.expected.get(group, _SLOW * self.normal(group)[0])
        return self.runs(group)[-1].trouble != "" or self.best(group) < least

    def best(self, group: RankGroup) -> float:
        """Return the best GB/s of exactly this group; 0 if it failed."""
        return max(0.0 if figure.trouble else figure.gb_per_s or 0.0 for figure in self.runs(group))


@functools.lru_cache(maxsize=4)
def group_readings(fabric: Fabric, rounds: tuple[Measured, ...]) -> GroupReadings:
    """Return the readings of all groups."""
    return GroupReadings(fabric, rounds)


@functools.lru_cache(maxsize=8)
def _stragglers(fabric: Fabric, rounds: tuple[Measured, ...], least: int, confidence: float) -> Stragglers:
    return Stragglers(fabric, rounds, least, confidence)
