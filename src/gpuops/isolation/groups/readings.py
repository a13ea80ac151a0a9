"""Results of groups of many nodes next to those of groups of the same size, and how such results scatter."""

from __future__ import annotations

import bisect
import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuops.isolation.evidence import Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.links import fits, loads_of, shared_links
from gpuops.isolation.readings import FigureKind, kind_of, level_of, upper_quartile
from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.isolation.spread import LEAST, Spread

_MIN_NODES = 3
_SIZE_RATIO = 2
"""Groups up to twice as large are compared: a doubling costs no more than healthy groups may differ."""
_WINDOW, _MAX_WINDOW = 3.0, 0.06
"""Results within this many scales below the best ones, at most 6 %, are of the healthy level."""
_FEW, _SLACK = 2, 0.96
"""In a round with so few groups all may be slow: healthy ones reach this fraction of the level of other rounds."""
_CLEAN, _CONTENDED = 0.02, 0.1
"""If fewer pairs between units are disturbed than the first, only stragglers make all groups of a round slow; if more
than the second, flows collide there, and every round has another level."""
_FAILED = 0.02
"""A group that fails counts as one with this fraction of the level."""
_FAR = 3.0
"""A result this many scales below the level, and 3 %, is low."""
_PRIOR = 4
"""How many healthy groups the share of disturbed pairs weighs as much as: a group crosses other links than a pair."""
_PRIOR_OF_FLOWS = (0.5, 50)
"""Before any flow is seen, one in a hundred counts as disturbed, with the weight of as many flows."""
_ENOUGH_FLOWS = 100
"""Fewer single flows do not show that all paths are healthy: of a hundred without a slow one, up to 3 % may be slow."""
_MAX_PAIRS = 400
_ENOUGH = 16
"""This many healthy groups show how groups scatter; with fewer, pairs show it."""


class _Run(NamedTuple):
    """A result, and how many groups of its round cross the boundary of a unit that it crosses, at most.

    ``node_rate`` is the line rate in GB/s of the node with the slowest NICs, which limits the group.
    """

    round_index: int
    figure: GroupResult
    load: int
    blocks: frozenset[int]
    node_rate: float

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the group."""
        return self.figure.group.nodes


class GroupReading(NamedTuple):
    """A result of a group with the healthy ``level`` in GB/s of such groups in its round; ``u = log(GB/s / level)``.

    ``load`` is 0 for a group inside a unit, else how many groups share the uplinks that it crosses, at most. Where the
    unit of a node is unknown, that is a guess; then the group ``may_cross`` uplinks, whatever its load.
    """

    round_index: int
    figure: GroupResult
    level: float
    u: float
    load: int
    may_cross: bool

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of the group."""
        return self.figure.group.nodes


class GroupReadings:
    """All results of groups that can be compared. One is ``low`` if it is further below the level than noise is.

    Groups with one of ``stragglers`` are left out.
    """

    def __init__(self, fabric: Fabric, rounds: Sequence[Measured], stragglers: frozenset[str] = frozenset()) -> None:
        self.fabric, self._stragglers = fabric, stragglers
        self._rounds = rounds
        self._across_values = _pair_values(rounds, fabric, crosses=True)
        self._inside_values = _pair_values(rounds, fabric, crosses=False)
        self._inside, self._across = Spread(self._inside_values), Spread(self._across_values)
        self.all = tuple(self._readings())

    def _readings(self) -> Iterator[GroupReading]:
        groups = [(index, m) for index, m in enumerate(self._rounds) if m.round.scope == "group"]
        runs_by_round = [list(_runs(index, measured, self.fabric)) for index, measured in groups]
        runs_by_round = [[run for run in runs if self._stragglers.isdisjoint(run.nodes)] for runs in runs_by_round]
        every = [run for runs in runs_by_round for run in runs]
        for runs in runs_by_round:
            for run in runs:
                peers = self._peers(run, runs)
                level = self._level(peers) if len(peers) > 1 else 0.0
                if len(peers) <= _FEW and not (level and self._is_contended):
                    level = self._next_to_other_rounds(level, _like(run, every))
                if level:
                    ratio = max(_FAILED, _speed(run.figure) / level)
                    may_cross = run.load > 0 or not self.fabric.unit_of.keys() >= set(run.nodes)
                    yield GroupReading(run.round_index, run.figure, level, math.log(ratio), run.load, may_cross)

    @functools.cached_property
    def _is_contended(self) -> bool:
        """Return True if flows between units often collide: then only groups that share uplinks are comparable."""
        return self._across.disturbed > _CONTENDED

    def _peers(self, run: _Run, runs: Sequence[_Run]) -> list[_Run]:
        peers = _like(run, runs)
        if self._is_contended and run.load > 1:
            return [peer for peer in peers if not run.blocks.isdisjoint(peer.blocks)]
        return peers

    def _next_to_other_rounds(self, level: float, peers: Sequence[_Run]) -> float:
        """Return the level of a round with one or two groups; 0 if it is unknown."""
        if len({peer.figure.group for peer in peers}) < _FEW:
            return 0.0
        elsewhere = self._level(peers, max)
        if not level:
            return elsewhere
        if self._across.disturbed <= _CLEAN:
            return max(level, _SLACK * elsewhere)
        return level if level >= _SLACK * elsewhere else 0.0

    def _level(self, peers: Sequence[_Run], best: Callable[[Sequence[float]], float] = upper_quartile) -> float:
        """Return the healthy level of comparable groups, of which most may be slow; 0 if all failed."""
        rates = sorted(speed for peer in peers if (speed := _speed(peer.figure)))
        if not rates:
            return 0.0
        window = min(_MAX_WINDOW, LEAST / 2 + _WINDOW * self._inside.scale)
        return level_of([rate for rate in rates if rate >= (1 - window) * best(rates)])

    @functools.cached_property
    def edge(self) -> float:
        """The value of ``u`` below which a reading is low."""
        return -max(1.5 * LEAST, _FAR * self._inside.scale)

    def is_low(self, reading: GroupReading) -> bool:
        """Return True if the group is slower than others by more than noise."""
        return reading.u < self.edge

    def spread(self, readings: Sequence[GroupReading]) -> Spread:
        """Return the spread of healthy ``readings``: that of pairs, or of the groups themselves if they scatter more.

        Nodes all of whose groups are low may be at fault: groups with one of them do not count.
        """
        spread = Spread(_pair_values(self._rounds, self.fabric, crosses=False))
        healthy = self._without_suspects(readings)
        own = Spread(reading.u for reading in healthy)
        if len(healthy) >= _ENOUGH and own.scale > spread.scale:
            spread.scale, spread.freedom = own.scale, own.freedom
        usual = self.disturbed_crossing(readings) if any(r.may_cross for r in readings) else self._inside.disturbed
        low = sum(map(self.is_low, healthy))
        spread.disturbed = min(0.5, (low + _PRIOR * usual) / (len(healthy) + _PRIOR))
        return spread

    def disturbed_crossing(self, readings: Iterable[GroupReading]) -> float:
        """Return the share of groups between units in which a flow is disturbed: they have one on each rail and side.

        Pairs show the share of single flows, as far as more of them are low than of pairs inside units, which scatter
        as much. It is 0 if no group crosses units. Each hop between nodes of unknown units may cross.
        """
        crossing = [reading for reading in readings if reading.may_cross]
        if not crossing:
            return 0.0
        ends = statistics.median(self._ends(reading) for reading in crossing)
        share = self._disturbed_flows()
        if len(self._single_values) >= _ENOUGH_FLOWS and all(map(self._has_single_flows, crossing)):
            share = min(share, self._disturbed_share(self._single_values))  # load only adds to what disturbs a flow
        healthy: float = (1 - share) ** (ends * len(self.fabric.rails))
        return 1 - healthy

    def _ends(self, reading: GroupReading) -> int:
        """Return how many flows of a ring on one rail may cross units."""
        units = [self.fabric.unit_of.get(name) for name in reading.nodes]
        return len(set(units) - {None}) + units.count(None)

    def _disturbed_flows(self) -> float:
        if self._are_units_known:
            return self._disturbed_share(self._across_values)
        # no pair is known to stay inside a unit; healthy ones are as often this far above the level as below it
        values = [*self._across_values, *self._inside_values]
        return _share_of_flows(sum(u < self.edge for u in values) - sum(u > -self.edge for u in values), len(values))

    def _disturbed_share(self, values: Sequence[float]) -> float:
        """Return the share of disturbed flows, of which ``values`` tell."""
        usual = sum(u < self.edge for u in self._inside_values) / max(1, len(self._inside_values))
        return _share_of_flows(sum(u < self.edge for u in values) - usual * len(values), len(values))

    @functools.cached_property
    def _are_units_known(self) -> bool:
        return self.fabric.unit_of.keys() >= self.fabric.nodes.keys()

    @functools.cached_property
    def _single_values(self) -> list[float]:
        """The values of pairs that had their links between units to themselves."""
        return [u for measured in self._rounds for u in _single_values(measured, self.fabric)]

    def _has_single_flows(self, reading: GroupReading) -> bool:
        """Return True if the group sends one flow over each of the links that it shares with others, and no other does.

        In a ring, that is so if each rail has leaves of its own and each unit's nodes follow one another.
        """
        nodes = [self.fabric.nodes[name] for name in reading.nodes]
        return reading.load == 1 and all(len(node.leaves) == len(node.nics) for node in nodes)

    def _without_suspects(self, readings: Sequence[GroupReading]) -> list[GroupReading]:
        fast = {name for reading in readings if not self.is_low(reading) for name in reading.nodes}
        return [reading for reading in readings if fast.issuperset(reading.nodes)]


def _share_of_flows(low: float, of: int) -> float:
    return (max(0.0, low) + _PRIOR_OF_FLOWS[0]) / (of + _PRIOR_OF_FLOWS[1])


def _speed(figure: GroupResult) -> float:
    return 0.0 if figure.trouble else figure.gb_per_s or 0.0


def _runs(index: int, measured: Measured, fabric: Fabric) -> Iterator[_Run]:
    """Yield the results of one round."""
    blocks = [frozenset(fabric.block_of[name] for name in figure.group.nodes) for figure in measured.figures]
    loads = Counter(block for own in blocks if len(own) > 1 for block in own)
    for figure, own in zip(measured.figures, blocks, strict=True):
        load = max(loads[block] for block in own) if len(own) > 1 else 0
        yield _Run(index, figure, load, own, slowest_rate(figure.group, fabric))


def slowest_rate(group: RankGroup, fabric: Fabric) -> float:
    """Return the line rate in GB/s that the group can use: of the rails that all nodes have, with the slowest NICs."""
    rails = set.intersection(*({nic.rail for nic in fabric.nodes[name].nics} for name in group.nodes))
    return sum(min(fabric.rates[name, rail] for name in group.nodes) for rail in rails)


def _like(run: _Run, others: Iterable[_Run]) -> list[_Run]:
    """Return the results of groups of similar size and rate that share uplinks with as many others.

    A few nodes are none.
    """
    similar = (other for other in others if run.load == other.load and run.node_rate == other.node_rate)
    return [other for other in similar if _is_similar(len(run.nodes), len(other.nodes))]


def _is_similar(count: int, other: int) -> bool:
    return min(count, other) >= _MIN_NODES and max(count, other) <= _SIZE_RATIO * min(count, other)


def _pair_values(rounds: Sequence[Measured], fabric: Fabric, *, crosses: bool) -> list[float]:
    """Return ``u`` of pairs inside units or across, next to those of the same round; some if there are many."""
    values: list[float] = []
    for measured in rounds:
        if measured.round.scope in {"rail", "pair"}:
            values += _round_values(measured, fabric, crosses=crosses)
    return values[:: max(1, len(values) // _MAX_PAIRS)]


@functools.lru_cache(maxsize=64)
def _round_values(measured: Measured, fabric: Fabric, *, crosses: bool) -> list[float]:
    rates: dict[FigureKind, list[float]] = {}
    for figure in measured.figures:
        kind = kind_of(figure.group, fabric)
        if figure.gb_per_s and not figure.trouble and kind[-1] is crosses:
            bisect.insort(rates.setdefault(kind, []), figure.gb_per_s)
    enough = ((ordered, level_of(ordered)) for ordered in rates.values() if len(ordered) >= _MIN_NODES)
    return [math.log(rate / level) for ordered, level in enough for rate in ordered]


@functools.lru_cache(maxsize=64)
def _single_values(measured: Measured, fabric: Fabric) -> list[float]:
    """Return ``u`` of pairs on a rail that crossed units, if no two of the round share a link."""
    if measured.round.scope != "rail":
        return []
    loads = loads_of(measured, fabric)
    crossing = [link for group in measured.round.groups for link in shared_links(group, fabric)]
    return _round_values(measured, fabric, crosses=True) if crossing and fits(loads, fabric) else []
