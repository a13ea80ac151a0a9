"""Rounds that measure suspects again: each alone on all that it crosses, with healthy partners."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet

from gpuops.errors import format_count
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.links import SharedLink, fits, shared_links
from gpuops.isolation.parts import Part, parts_of
from gpuops.isolation.readings import Readings
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.isolation.suspects import Suspect, SuspectAnalysis
from gpuops.isolation.sweeps import sweep

_CONTROLS = 8
_NEAREST = 64
"""In a big fleet a partner is looked for among so many nodes before the rest: to compare all takes minutes."""
_TURN = 0.618
"""Each round begins at another place of the sweep: multiples of the golden ratio's fraction are spread evenly."""


class _Occupied:
    """The ports and shared links that the groups of a round use, so that no group disturbs another."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._ports: set[tuple[str, int]] = set()
        self._loads: Counter[SharedLink] = Counter()
        self.groups: list[RankGroup] = []

    def add(self, group: RankGroup) -> bool:
        """Add the group if it disturbs no other one; return True if it was added."""
        ports, links = self._ports_of(group), shared_links(group, self._fabric)
        loads = {link: self._loads[link] + 1 for link in links}
        if not self._ports.isdisjoint(ports) or not fits(loads, self._fabric):
            return False
        self._ports |= ports
        self._loads.update(links)
        self.groups.append(group)
        return True

    def is_free(self, ports: Iterable[tuple[str, int]]) -> bool:
        """Return True if no group uses one of the ports."""
        return self._ports.isdisjoint(ports)

    def _ports_of(self, group: RankGroup) -> set[tuple[str, int]]:
        rails = self._fabric.rails if group.rail is None else (group.rail,)
        return {(node, rail) for node in group.nodes for rail in rails}


def retest_round(analysis: SuspectAnalysis, number: int) -> Round:
    """Pair each suspect with one partner on each of its rails, as many as can run undisturbed at once."""
    suspects = [suspect for suspect in analysis.open if suspect.part.kind in {"node", "nic"} or has_one_nic(suspect)]
    suspects.sort(key=lambda suspect: suspect.part.kind == "leaf")  # last, because a leaf's pair runs alone on it
    occupied = _Occupied(analysis.readings.fabric)
    partners = _Partners(analysis)
    for suspect in suspects:
        _add_pairs(suspect, partners, occupied)
    uplinks = {suspect.part for suspect in analysis.open if suspect.part.kind == "uplink"}
    if uplinks:
        for group in _across(uplinks, analysis, number):
            occupied.add(group)
    if occupied.groups:
        _add_controls(analysis, occupied, number)
    count = len(suspects) + len(uplinks)
    return Round("rail", tuple(occupied.groups), f"{format_count(count, 'suspect')} with healthy partners")


def uplinks_alone(fabric: Fabric, number: int) -> Round:
    """Pair nodes of different units so that each transfer has its links to the spine to itself, as many as can run."""
    occupied = _Occupied(fabric)
    for group in sweep(fabric, "across", number).groups:
        occupied.add(group)
    return Round("rail", tuple(occupied.groups), "single transfers between units, to distinguish links from their load")


def has_one_nic(suspect: Suspect) -> bool:
    """Return True if all that was slow over a leaf crossed one NIC, which then may be at fault as well."""
    return suspect.part.kind == "leaf" and any(part.kind == "nic" for part in suspect.alternatives)


def _add_pairs(suspect: Suspect, partners: _Partners, occupied: _Occupied) -> None:
    fabric = partners.readings.fabric
    for node, rail in _ports(suspect, partners.readings):
        own_ports = fabric.ports_of[suspect.part.owner] if suspect.part.kind == "leaf" else [(node, rail)]
        if occupied.is_free(own_ports):
            names = partners.of(suspect, node, rail, occupied)
            next((name for name in names if occupied.add(RankGroup((node, name), rail))), None)


def _add_controls(analysis: SuspectAnalysis, occupied: _Occupied, number: int) -> None:
    """Add healthy pairs inside units, which show how fast the round can be: all results drift as a fabric warms up."""
    fabric, added = analysis.readings.fabric, 0
    suspected = _suspected(analysis)
    groups = sweep(fabric, "inside", number).groups
    start = int(_TURN * number * len(groups))
    for group in (groups[(start + turn) % len(groups)] for turn in range(len(groups))):
        if added < _CONTROLS and suspected.isdisjoint(parts_of(group, fabric)):
            added += occupied.add(group)


def _suspected(analysis: SuspectAnalysis) -> frozenset[Part]:
    suspects = (*analysis.open, *analysis.confirmed, *analysis.shared)
    return frozenset().union(*map(_possible_parts, suspects))


def _possible_parts(suspect: Suspect) -> frozenset[Part]:
    """Return the parts of which one is at fault."""
    return frozenset((suspect.part, *suspect.alternatives))


def _across(uplinks: AbstractSet[Part], analysis: SuspectAnalysis, number: int) -> Iterator[RankGroup]:
    """Yield pairs of two units: first those that test one suspected uplink each, last healthy ones for comparison."""
    fabric = analysis.readings.fabric
    suspected = _suspected(analysis)
    groups = [group for turn in range(2) for group in sweep(fabric, "across", number + turn).groups]
    start = int(_TURN * number * len(groups)) % max(1, len(groups))

    def order(group: RankGroup) -> tuple[int, int]:
        crossed = parts_of(group, fabric)
        tested = len(uplinks & crossed)
        return (2, 0, 1)[tested], len((suspected - uplinks) & crossed)

    yield from sorted(groups[start:] + groups[:start], key=order)


def _ports(suspect: Suspect, readings: Readings) -> list[tuple[str, int]]:
    """Return the ports that test a suspect, as node and rail: its own, or the least measured of a leaf's slow ports.

    Only one port of a leaf is tested: several would share the leaf's uplinks to the spine and be slow for that reason.
    """
    part, fabric = suspect.part, readings.fabric
    if part.kind == "nic":
        return [(part.owner, part.number)]
    if part.kind == "node":
        return [(part.owner, nic.rail) for nic in fabric.nodes[part.owner].nics]
    slow_ports = {(node, r.figure.group.rail) for r in suspect.readings for node in r.figure.group.nodes}
    ports = [port for port in fabric.ports_of[part.owner] if port in slow_ports]
    return sorted(ports, key=lambda port: sum(1 for _ in readings.of(Part("nic", *port))))[:1]


class _Partners:
    """Possible partners of the suspects of one round."""

    def __init__(self, analysis: SuspectAnalysis) -> None:
        self.readings = analysis.readings
        self._fabric = analysis.readings.fabric
        self._names = list(self._fabric.nodes)
        self._twice = self._names * 2
        self._positions = {name: number for number, name in enumerate(self._names)}
        self._levels: dict[Part, list[float]] = {}
        for suspect in (*analysis.open, *analysis.confirmed):
            for part in _possible_parts(suspect):
                self._levels.setdefault(part, []).append(suspect.level)

    def of(self, suspect: Suspect, node: str, rail: int, occupied: _Occupied) -> Iterator[str]:
        """Yield free partners of ``node``, the best first: over healthy parts, from its own unit, new ones.

        If leaves are unknown, nodes that were also slow with others come first: if what they share with the node is at
        fault, the two are healthy together.
        """
        order = self._order(suspect, node, rail)
        for names in self._near_and_far(node):
            free = (name for name in names if occupied.is_free([(name, rail)]) and self._fabric.nodes[name].nic(rail))
            yield from sorted((name for name in free if not self._hides(suspect, node, name, rail)), key=order)

    def _near_and_far(self, node: str) -> Iterator[list[str]]:
        """Yield the nodes of its block and those that follow it in the inventory, then all others."""
        names, start = self._names, self._positions[node]
        around = {*self._fabric.blocks[self._fabric.block_of[node]], *self._twice[start : start + _NEAREST]} - {node}
        yield sorted(around, key=lambda name: (self._positions[name] - start) % len(names))
        yield [name for name in names[start + 1 :] + names[:start] if name not in around]

    def _hides(self, suspect: Suspect, node: str, name: str, rail: int) -> bool:
        """Return True if a pair of the two crosses another suspect that is no faster, or only the suspected leaf."""
        leaf_of, own = self._fabric.leaf_of, _possible_parts(suspect)

        def is_worse(part: Part) -> bool:
            return sum(level <= suspect.level for level in self._levels.get(part, ())) > (part in own)

        if (node, rail) not in leaf_of:
            return False
        if suspect.part.kind == "leaf" and leaf_of.get((name, rail)) == suspect.part.owner:
            return True
        if is_worse(Part("nic", name, rail)):  # the commonest reason, and the cheapest to find
            return True
        return any(map(is_worse, self._crossed(node, name, rail) - {Part("leaf", leaf_of[node, rail])}))

    def _order(self, suspect: Suspect, node: str, rail: int) -> Callable[[str], tuple[int, ...]]:
        """Return the key by which possible partners of ``node`` are sorted."""
        block_of, own = self._fabric.block_of, _possible_parts(suspect)
        is_mapped = (node, rail) in self._fabric.leaf_of
        times_met = Counter(n for r in self.readings.of(Part("nic", node, rail)) for n in r.figure.group.nodes)
        blocks_met = {block_of[name] for name in times_met}
        times_slow = Counter[str]() if is_mapped else self._times_slow(node, rail)

        def order(name: str) -> tuple[int, ...]:
            crossed = self._crossed(node, name, rail)
            suspected = sum(len(self._levels.get(part, ())) > (part in own) for part in crossed)
            same_block, known_block = block_of[name] == block_of[node], block_of[name] in blocks_met
            inside = is_mapped and same_block
            return suspected, not inside, times_met[name], -times_slow[name], same_block, known_block

        return order

    def _crossed(self, node: str, name: str, rail: int) -> frozenset[Part]:
        """Return what a pair crosses, as far as leaves are known."""
        is_mapped = (node, rail) in self._fabric.leaf_of
        return parts_of(RankGroup((node, name), rail), self._fabric) if is_mapped else frozenset()

    def _times_slow(self, node: str, rail: int) -> Counter[str]:
        """Count how often others were slow on ``rail`` without ``node``."""
        own = (name for group in self._slow_on.get(rail, ()) if node in group.nodes for name in group.nodes)
        return self._times_slow_on.get(rail, Counter[str]()) - Counter(own)

    @functools.cached_property
    def _slow_on(self) -> dict[int | None, list[RankGroup]]:
        """The groups that were slow, by rail."""
        groups: dict[int | None, list[RankGroup]] = {}
        for reading in self.readings.slow:
            groups.setdefault(reading.figure.group.rail, []).append(reading.figure.group)
        return groups

    @functools.cached_property
    def _times_slow_on(self) -> dict[int | None, Counter[str]]:
        """How often each node was slow, by rail."""
        return {rail: Counter(n for group in groups for n in group.nodes) for rail, groups in self._slow_on.items()}
