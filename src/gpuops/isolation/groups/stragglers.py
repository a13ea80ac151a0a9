"""Nodes that slow down the large groups that they are in, although all of their pairs are healthy.

Groups of the same size run side by side, in each round with other members. A straggler's groups are always slow,
whichever other nodes are in them. The e-value of a node (`gpuops.isolation.spread`) counts its groups as if it alone
were at fault. Other nodes, or the uplinks of a unit, that explain the same slow groups are its rivals; a node is sure
once its e-value is large enough and no rival is left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuops.isolation.evidence import Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.groups.odds import EValues
from gpuops.isolation.groups.readings import GroupReading, GroupReadings
from gpuops.isolation.spread import bound

LIKELY = math.log(3)
"""A node is measured on while its e-value is larger than this logarithm: the next groups clear it if it is healthy."""
_SHARED = 4
"""Other nodes that together explain a node's groups are its rivals if they share this part of them."""
_NEAR = math.log(20)
"""Nodes that are less likely than the likeliest by this factor are not dealt evenly any more."""
_LEAST_APART = 2
"""No single group is evidence enough against a node."""
VARYING = 0.2
"""Where flows disturb more of the groups than this, what a group reaches depends on its paths."""
_MAX_SUSPICIONS = 8
_MAX_TOGETHER, _MAX_TRIED = 3, 8
"""A node is sure if no three others together explain its groups; of many others, those that share most are tried."""


@dataclass(frozen=True)
class Suspicion:
    """A node that is likely a straggler, with the ``rivals`` and ``units`` that explain its groups, alone or together.

    ``near`` are the node and those rivals that are nearly as likely. ``readings`` are its groups, without those of more
    likely stragglers. ``probability`` bounds the chance that the node is healthy. ``may_be_paths`` is True if what its
    groups have in common may also be slow paths between units.
    """

    node: str
    log_e: float
    rivals: tuple[str, ...]
    units: tuple[str, ...]
    near: tuple[str, ...]
    readings: tuple[GroupReading, ...]
    probability: float
    is_sure: bool
    may_be_paths: bool = False

    @property
    def candidates(self) -> tuple[str, ...]:
        """The node, then its rivals."""
        return (self.node, *self.rivals)


class Stragglers:
    """The ``sure`` stragglers that results of groups show, and those that are still ``open``, the likeliest first.

    Only groups of at least ``least`` nodes count: a straggler does not slow small groups down. Groups with a sure one
    prove nothing of others.
    """

    def __init__(self, fabric: Fabric, rounds: Sequence[Measured], least: int, confidence: float) -> None:
        self.sure: tuple[Suspicion, ...] = ()
        suspects = _Suspects(GroupReadings(fabric, rounds), least, confidence)
        while (suspicion := suspects.sure()) is not None:
            self.sure = (*self.sure, suspicion)
            rest = GroupReadings(fabric, rounds, frozenset(sure.node for sure in self.sure))
            suspects = _Suspects(rest, least, confidence)
        self.open = tuple(suspects.open())
        self.counted, self.history, self.companions = suspects.counted, suspects.history, suspects.companions

    @property
    def nodes(self) -> set[str]:
        """The nodes that are stragglers, or may be."""
        return {name for suspicion in (*self.sure, *self.open) for name in suspicion.candidates}


class _Suspects:
    """The nodes of ``counted`` groups, with the e-value of each as if it alone were at fault."""

    def __init__(self, readings: GroupReadings, least: int, confidence: float) -> None:
        self._readings, self._confidence, self._margin = readings, confidence, math.log(1 / confidence)
        self.counted = tuple(reading for reading in readings.all if len(reading.nodes) >= least)
        self._e_values = EValues(readings.spread(self.counted))
        self._log_e_by_groups: dict[frozenset[int], float] = {}
        self._indices: dict[str, set[int]] = {}
        for index, reading in enumerate(self.counted):
            for node in reading.nodes:
                self._indices.setdefault(node, set()).add(index)
        self._unit_hypotheses = tuple(self._units())
        self._do_paths_vary = readings.disturbed_crossing(self.counted) > VARYING

    def history(self, node: str) -> tuple[int, ...]:
        """Return the indices of the groups with ``node``: nodes with the same history cannot be distinguished."""
        return tuple(sorted(self._indices.get(node, ())))

    def companions(self, node: str) -> list[str]:
        """Return the other nodes that were in all low groups with ``node``."""
        low = self._low(node)
        return [other for other, indices in self._indices.items() if other != node and low <= indices]

    def _low(self, node: str) -> set[int]:
        return {index for index in self._indices[node] if self._readings.is_low(self.counted[index])}

    def sure(self) -> Suspicion | None:
        """Return the likeliest straggler of which one can be sure."""
        likely = self._likely(self._indices)
        for node in likely:
            if self._probability(likely[node]) <= self._confidence and not self._has_a_twin(node, likely):
                suspicion = self._suspicion(node, likely, self._indices)
                if suspicion.is_sure:
                    return suspicion
        return None

    def _has_a_twin(self, node: str, likely: Mapping[str, float]) -> bool:
        """Return True if all low groups with the node but one contain another likely node, too: it is not sure then.

        Neither is it if all contain another node at all: the two may fail only together.
        """
        if self.companions(node):
            return True
        low = self._low(node)
        near = (other for other, log_e in likely.items() if other != node and log_e > likely[node] - self._margin)
        return any(len(low - self._indices[other]) < _LEAST_APART for other in near)

    def open(self) -> Iterator[Suspicion]:
        """Yield one suspicion after the other; groups that a likelier straggler explains do not count."""
        explained: set[int] = set()
        for _ in range(_MAX_SUSPICIONS):
            free = {node: indices - explained for node, indices in self._indices.items()}
            likely = self._likely(free)
            if not likely:
                return
            yield self._suspicion(next(iter(likely)), likely, free)
            explained |= self._indices[next(iter(likely))]

    def _likely(self, indices: Mapping[str, set[int]]) -> dict[str, float]:
        """Return the logarithm of the e-value of each node that may be a straggler, the likeliest first."""
        likely = {node: log_e for node, own in indices.items() if (log_e := self._log_e(own)) > LIKELY}
        return dict(sorted(likely.items(), key=lambda item: -item[1]))

    def _units(self) -> Iterator[tuple[str, float, set[int]]]:
        """Yield each unit whose way out may be slow: its log e-value, and the slow groups that this explains.

        It explains a group only if all that crossed it in that round are slow.
        """
        crossing: dict[str, dict[int, list[int]]] = {}
        for index, reading in enumerate(self.counted):
            units = {self._readings.fabric.unit_of.get(node) for node in reading.nodes} - {None}
            for unit in units if len(units) > 1 else ():
                crossing.setdefault(str(unit), {}).setdefault(reading.round_index, []).append(index)
        for unit, rounds in crossing.items():
            best = [max(indices, key=lambda index: self.counted[index].u) for indices in rounds.values()]
            slow = (
                indices for indices in rounds.values() if all(self._readings.is_low(self.counted[i]) for i in indices)
            )
            yield unit, self._log_e(best), set(itertools.chain.from_iterable(slow))

    def _log_e(self, indices: Collection[int]) -> float:
        """Return the logarithm of the e-value of a node with the groups ``indices``."""
        if all(self.counted[index].u >= self._readings.edge / 2 for index in indices):
            return 0.0
        key = frozenset(indices)
        if key not in self._log_e_by_groups:
            self._log_e_by_groups[key] = self._e_values.log_e(self.counted[index].u for index in indices)
        return self._log_e_by_groups[key]

    def _probability(self, log_e: float) -> float:
        return bound(log_e, len(self._indices))

    def _suspicion(self, node: str, likely: Mapping[str, float], free: Mapping[str, set[int]]) -> Suspicion:
        own, log_e = free[node], likely[node]
        nodes = ((name, other, free[name]) for name, other in likely.items() if name != node)
        close = [rival for rival in (*nodes, *self._unit_hypotheses) if rival[1] > log_e - self._margin]
        against = {name: max(log_e - other, self._log_e(own - groups)) for name, other, groups in close}
        rivals = [name for name, log_odds in against.items() if log_odds < self._margin]
        is_explained = not rivals and self._is_explained(own, [groups for *_, groups in close])
        if is_explained:
            rivals = [name for name, _, groups in close if len(own & groups) >= len(own) / _SHARED]
        against_paths = self._log_odds_against_paths(own)
        probability = max(self._probability(log_e), math.exp(-min([*against.values(), against_paths])))
        return Suspicion(
            node,
            log_e,
            rivals=tuple(name for name in rivals if name in likely),
            units=tuple(name for name in rivals if name not in likely),
            near=(node, *(name for name in rivals if likely.get(name, 0.0) > log_e - _NEAR)),
            readings=tuple(self.counted[index] for index in sorted(own)),
            probability=min(1.0, probability),
            is_sure=not is_explained and probability <= self._confidence,
            may_be_paths=against_paths < self._margin,
        )

    def _log_odds_against_paths(self, own: Collection[int]) -> float:
        """Return how much likelier a node with the groups ``own`` is than that paths between units differ by chance.

        Each group takes other paths. Where flows between units are often disturbed, a slow path alone explains as many
        slow groups as were seen, but not in which groups they were.
        """
        if not self._do_paths_vary:
            return math.inf
        crossing = {index for index, reading in enumerate(self.counted) if reading.may_cross}
        low = {index for index in crossing if self._readings.is_low(self.counted[index])}
        without = crossing.difference(own)
        by_chance = _log_likelihood(len(low), len(crossing))
        return _log_likelihood(len(low & without), len(without)) - by_chance - math.log(len(self._indices))

    def _is_explained(self, own: set[int], others: Sequence[set[int]], most: int = _MAX_TOGETHER) -> bool:
        """Return True if up to ``most`` others together leave too little evidence of a node with the groups ``own``."""
        if self._log_e(own) < self._margin:
            return True
        covering = sorted(others, key=lambda groups: -len(own & groups))[:_MAX_TRIED] if most else []
        return any(self._is_explained(own - groups, others, most - 1) for groups in covering if own & groups)


def _log_likelihood(count: int, of: int) -> float:
    """Return the log likelihood of ``count`` slow groups in a certain order, with the share that fits best."""
    return sum(number * math.log(number / of) for number in (count, of - count) if number)


def in_order(fabric: Fabric, names: Collection[str]) -> tuple[str, ...]:
    """Return ``names`` block by block, so that a group crosses the boundary of a unit as rarely as possible."""
    return tuple(name for block in fabric.blocks for name in block if name in names)
