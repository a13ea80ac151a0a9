"""Groups of many nodes, measured once their pairs are judged, and the search for what slows only such groups down.

First the nodes of each unit run together, then groups of about 16 nodes side by side. While one of them is slower than
the others, its nodes are dealt to new groups, until one node is left that all slow groups share, or none. Then all
nodes run together. If that is much slower than smaller groups although those are alike, its halves are searched like
the groups of 16. If the halves are alike too, no part is blamed: the cause is the size, or what joins them.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuops.isolation.evidence import IN_WORDS, Blame, BlamedPart, Evidence, Kind, Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.groups.dealing import Deal, Nodes, even_groups, max_left_out
from gpuops.isolation.groups.readings import GroupReading, GroupReadings, slowest_rate
from gpuops.isolation.groups.stragglers import LIKELY, Stragglers, Suspicion
from gpuops.isolation.groups.unexplained import slow_at_times, unexplained_failures
from gpuops.isolation.intra_node import blame as blame_intra_node
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.spread import bound
from gpuops.isolation.suspects import Suspect, SuspectAnalysis

_SLOW = 0.85
"""Below this fraction of what smaller groups reached, a large one is slow: it may use another algorithm."""
_LOSS_BY_DOUBLING = 0.015
"""A healthy group may lose this fraction with each doubling of its nodes; more is worth a few rounds.

An assumption: with large messages no loss is published (NVIDIA/nccl issue 1712: basically the same; HGX H100 with
InfiniBand: 365.8 GB/s on 4 nodes in nccl-tests issue 309, 386.6 GB/s on 8 in coreweave/nccl-tests)."""
_SLOW_UNIT = math.log(0.9)
"""A unit is slow below this fraction of other units: with all of its nodes its leaves may be."""
_TIMES = 3
"""All nodes together are slow if they were slow this many times: transient disturbances do not last."""
_MAX_UNIT_RUNS = 4
"""A unit that was slow in fewer runs may be undecided; in more, something else is at fault."""
_MOST_UNEXPLAINED = 1 / 8
"""Where more of the nodes are slow at times, the fabric is busy, and to leave them out would leave nothing to judge."""
_MAX_NAMES, _MAX_WORDS = 16, 2
_LEAVES = "the leaf of each port is unknown (fabric:)"


def nodes_to_exclude(evidence: Evidence, analysis: SuspectAnalysis) -> set[str]:
    """Return the nodes that would slow a group down, from what is blamed or suspected already."""
    fabric, inside = evidence.fabric, blame_intra_node(evidence)
    nodes = {part.partition(":")[0] for blamed in inside.blamed for part in (blamed.part, *blamed.alternatives)}
    nodes |= {part.partition(":")[0] for part in inside.suspects}
    likely = (suspect for suspect in analysis.open if not suspect.flaps or suspect.certainty.log_e > 0)
    for suspect in (*analysis.confirmed, *likely, *analysis.shared):
        nodes |= set(_nodes_affected_by(suspect, analysis))
    unexplained = Counter(n for r in analysis.unexplained for n in r.figure.group.nodes if n not in fabric.unit_of)
    often = {name for name, count in unexplained.items() if count > 2}
    return nodes | (often if len(often) <= _MOST_UNEXPLAINED * len(fabric.nodes) else set())


def _nodes_affected_by(suspect: Suspect, analysis: SuspectAnalysis) -> Iterator[str]:
    fabric = analysis.readings.fabric
    for part in (suspect.part, *suspect.alternatives):
        if part.kind == "leaf":
            yield from (node for node, _ in fabric.ports_of[part.owner])
        elif part.kind == "uplink":
            yield from fabric.units[part.owner]
        else:
            yield part.owner


def next_group_round(evidence: Evidence, analysis: SuspectAnalysis) -> Round | None:
    """Return the next round of groups; None if all are healthy or judged."""
    if "group" not in evidence.scopes:
        return None
    groups = _Groups(evidence)
    excluded = nodes_to_exclude(evidence, analysis)
    healthy = [tuple(name for name in block if name not in excluded) for block in evidence.fabric.blocks]
    faults = len(analysis.confirmed) + len(blame_intra_node(evidence).blamed)
    return (
        _first(groups, healthy)
        or _search(groups, faults)
        or _whole(groups, healthy)
        or _whole_again(groups, faults)
        or _units_again(groups, faults)
    )


class _Groups:
    """The rounds of groups so far: of units, of even groups, of all nodes, and of the searches."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence, self.fabric = evidence, evidence.fabric
        self.rounds = tuple(measured for measured in evidence.rounds if measured.round.scope == "group")
        self.readings = _readings(self.fabric, evidence.rounds)
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
    def slow_units(self) -> tuple[_SlowUnit, ...]:
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
                    slow.append(_SlowUnit(unit, tuple(own), bound(log_e, len(self.units))))
        return tuple(slow)


class _SlowUnit(NamedTuple):
    """The results of a unit that is slow with all of its nodes, and the bound on the chance that a healthy one is."""

    group: RankGroup
    readings: tuple[GroupReading, ...]
    probability: float


@functools.lru_cache(maxsize=4)
def _readings(fabric: Fabric, rounds: tuple[Measured, ...]) -> GroupReadings:
    return GroupReadings(fabric, rounds)


@functools.lru_cache(maxsize=8)
def _stragglers(fabric: Fabric, rounds: tuple[Measured, ...], least: int, confidence: float) -> Stragglers:
    return Stragglers(fabric, rounds, least, confidence)


def _first(groups: _Groups, healthy: Sequence[Nodes]) -> Round | None:
    """Return the nodes of each unit together, then even groups, unless the units are such groups."""
    if not groups.rounds:
        units = [names for names in healthy if len(names) > 1]
        if len(units) == 1 and len(units[0]) >= 2 * _TIMES:
            units = [units[0][: len(units[0]) // 2], units[0][len(units[0]) // 2 :]]
        if len(units) > 1:
            return Round("group", tuple(map(RankGroup, units)), "each unit together")
    bases = groups.bases if groups.rounds else even_groups(healthy)
    if len(bases) < 2 or all(groups.runs(RankGroup(base)) for base in bases):
        return None
    return Round("group", tuple(map(RankGroup, bases)), f"{len(bases)} groups of {max(map(len, bases))} nodes")


def _search(groups: _Groups, faults: int) -> Round | None:
    """Return new groups of the nodes that may be stragglers, while there are any and enough rounds."""
    stragglers = groups.stragglers
    if not stragglers.open or not _are_rounds_left(groups, faults):
        return None
    count = len({name for suspicion in stragglers.open for name in suspicion.near})
    return _deal(groups, f"search among {count} node{'s' * (count > 1)}")


def _are_rounds_left(groups: _Groups, faults: int) -> bool:
    """Return True within 2 ceil(log2 N) + 6 rounds and four more for each fault; the last one is for all nodes.

    However many rounds a noisy fabric took before, groups have ceil(log2 N) + 6.
    """
    is_likely = bool(groups.stragglers.open) or (groups.whole is not None and _is_below_its_size(groups, groups.whole))
    faults += len(groups.stragglers.sure) + is_likely
    halves = math.ceil(math.log2(max(2, len(groups.fabric.nodes))))
    left = max(2 * halves + 6 + 4 * faults - len(groups.evidence.rounds), halves + 6 - len(groups.rounds))
    return left > (groups.whole is None)


def _deal(groups: _Groups, why: str) -> Round | None:
    deal = Deal(groups.fabric, groups.stragglers, len(groups.rounds))
    bases = groups.halves if groups.are_halves_searched else groups.bases
    if len(bases) > 1:
        dealt = deal.groups(bases)
        return Round("group", dealt, why) if dealt else None
    group = deal.all_but_some(bases[0])
    return Round("group", (group,), why) if group else None


def _units_again(groups: _Groups, faults: int) -> Round | None:
    """Return the units again if one was slow although no node of it is suspected."""
    confidence = groups.evidence.confidence
    is_open = any(unit.probability > confidence and len(unit.readings) < _MAX_UNIT_RUNS for unit in groups.slow_units)
    if not is_open or not _are_rounds_left(groups, faults):
        return None
    return Round("group", tuple(groups.units), "each unit together, again")


def _whole(groups: _Groups, healthy: Sequence[Nodes]) -> Round | None:
    """Return the round of all healthy nodes together."""
    if groups.whole is not None:
        return None
    excluded = groups.stragglers.nodes.union(*(unit.group.nodes for unit in groups.slow_units))
    every = tuple(name for block in healthy for name in block)
    names = tuple(name for name in every if name not in excluded)
    if len(names) < 2 or groups.runs(RankGroup(names)):
        names = every  # the rest alone shows nothing new, but which node of a slow unit it is may be found
    if len(names) < 2 or groups.runs(RankGroup(names)):
        return None
    return Round("group", (RankGroup(names),), f"{len(names)} nodes together")


def _whole_again(groups: _Groups, faults: int) -> Round | None:
    """Return what follows if all nodes together are slow although no node is suspected."""
    whole = groups.whole
    is_explained = whole is None or not groups.stragglers.nodes.isdisjoint(whole.nodes)
    if whole is None or is_explained or not _are_rounds_left(groups, faults):
        return None
    return _other_groups(groups, whole) or (_repeat(groups, whole) if _is_slow(groups, whole) else None)


def _other_groups(groups: _Groups, whole: RankGroup) -> Round | None:
    """Return other groups if the whole is slower than its size explains, or if two may both be slow."""
    is_new = len(groups.rounds[-1].round.groups) == 1 and len(groups.runs(whole)) == 1
    if not (_is_below_its_size(groups, whole) or len(groups.bases) == 2) or not (is_new or len(groups.bases) == 1):
        return None
    return _deal(groups, "other groups, to compare")


def _repeat(groups: _Groups, whole: RankGroup) -> Round | None:
    """Return a slow whole again; at last its halves, if they are larger than the groups so far."""
    if len(groups.runs(whole)) < _TIMES:
        return Round("group", (whole,), f"{len(whole.nodes)} nodes together, again")
    if groups.halves and not groups.are_halves_searched:
        return Round("group", tuple(map(RankGroup, groups.halves)), "each half of all nodes")
    return None


def _normal(groups: _Groups, group: RankGroup) -> tuple[float, int]:
    """Return the best GB/s of other groups, as far as its slowest NICs allow, and how many nodes that group has."""
    own = slowest_rate(group, groups.fabric)
    others = []
    for figure in (f for m in groups.rounds for f in m.figures if f.group != group):
        rate = slowest_rate(figure.group, groups.fabric)  # 0 if it is unknown
        allowed = min(1.0, own / rate) if own and rate else 1.0
        others.append((allowed * (figure.gb_per_s or 0.0), len(figure.group.nodes)))
    return max((other for other in others if other[1] > 2), default=(0.0, len(group.nodes)))


def _is_below_its_size(groups: _Groups, whole: RankGroup) -> bool:
    """Return True if the whole is slower than smaller groups by more than its size explains, or fails."""
    normal, size = _normal(groups, whole)
    doublings = math.log2(max(1.0, len(whole.nodes) / size))
    least = normal * (1 - _LOSS_BY_DOUBLING * doublings + groups.readings.edge / 2)
    return _best(groups, whole) < least


def _is_slow(groups: _Groups, whole: RankGroup) -> bool:
    """Return True if the whole fails, or is slower than expected, or much slower than others if nothing is expected."""
    least = groups.evidence.expected.get(whole, _SLOW * _normal(groups, whole)[0])
    return groups.runs(whole)[-1].trouble != "" or _best(groups, whole) < least


def _best(groups: _Groups, group: RankGroup) -> float:
    return max(0.0 if figure.trouble else figure.gb_per_s or 0.0 for figure in groups.runs(group))


def blame_groups(evidence: Evidence) -> Blame:
    """Return what groups show but pairs do not."""
    groups = _Groups(evidence)
    if not groups.rounds:
        return Blame()
    units = [_blame_unit(groups, unit) for unit in groups.slow_units]
    explained = groups.stragglers.nodes.union(*(unit.group.nodes for unit in groups.slow_units))
    return Blame(
        (
            *(_straggler(suspicion) for suspicion in groups.stragglers.sure),
            *(part for part in units if isinstance(part, BlamedPart)),
        ),
        contention=tuple(slow_at_times(groups.readings, explained)),
        unclear=(
            *_unsure(groups.stragglers.open),
            *(sentence for sentence in units if isinstance(sentence, str)),
            *_unclear_whole(groups),
            *unexplained_failures(groups.rounds, {suspicion.node for suspicion in groups.stragglers.sure}),
        ),
    )


def _straggler(suspicion: Suspicion) -> BlamedPart:
    found, normal, words = _speeds(suspicion)
    own = Counter(reading.figure.detail for reading in suspicion.readings if reading.figure.detail)
    details = (detail for detail, _ in own.most_common(_MAX_WORDS))
    sentences = (words, *details, "others of the same size are healthy without it, and so are its pairs")
    return BlamedPart(
        suspicion.node, _kind(suspicion), found, normal, evidence=sentences, probability=suspicion.probability
    )


def _speeds(suspicion: Suspicion) -> tuple[float | None, float, str]:
    """Return the typical GB/s of its groups and of healthy ones, and both in words."""
    rates = [reading.figure.gb_per_s for reading in suspicion.readings if reading.figure.gb_per_s]
    found = statistics.median(rates) if rates else None
    normal = statistics.median(reading.level for reading in suspicion.readings)
    sizes = sorted(len(reading.nodes) for reading in suspicion.readings)
    nodes = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    speed = IN_WORDS[_kind(suspicion)] if found is None else f"{found:.3g} of {normal:.3g} GB/s"
    count = len(suspicion.readings)
    return found, normal, f"{speed} in {count} group{'s' * (count > 1)} of {nodes} nodes with it"


def _kind(suspicion: Suspicion) -> Kind:
    troubles = Counter(reading.figure.trouble for reading in suspicion.readings if reading.figure.trouble)
    return troubles.most_common(1)[0][0] if troubles else "slow"


def _unsure(suspicions: Iterable[Suspicion]) -> Iterator[str]:
    """Yield a sentence for each likely straggler; one for those that the same nodes or units would explain."""
    waiting = list(suspicions)
    while waiting:
        first, *rest = waiting
        own = {*first.candidates, *first.units}
        alike = [first, *(other for other in rest if not own.isdisjoint((*other.candidates, *other.units)))]
        waiting = [other for other in rest if other not in alike]
        names = list(dict.fromkeys(name for suspicion in alike for name in suspicion.candidates))
        units = [unit for unit in first.units if all(unit in other.units for other in alike)]
        which = names[0] if len(names) == 1 else f"some of {len(names)} nodes ({_listed(names)})"
        joins = f", or what joins {' or '.join(units)} to others" if units else ""
        joins = ", or slow paths between units" if first.may_be_paths and not units else joins
        yield f"{which} may slow large groups{joins}: {_speeds(first)[2]}; more rounds would decide"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


def _blame_unit(groups: _Groups, unit: _SlowUnit) -> BlamedPart | str:
    """Return the leaves of a unit that is slow only with all of its nodes, or what is known."""
    nodes = unit.group.nodes
    found = statistics.median(reading.figure.gb_per_s or 0.0 for reading in unit.readings)
    normal = statistics.median(reading.level for reading in unit.readings)
    name = groups.fabric.unit_of.get(nodes[0])
    where = f"unit {name}" if name else "one unit"
    summary = f"{len(nodes)} nodes of {where} together: {found:.3g} of {normal:.3g} GB/s, {_times(len(unit.readings))}"
    if name is None:
        return f"{summary}; {_LEAVES}"
    first, *others = (f"leaf:{leaf}" for leaf in groups.fabric.nodes[nodes[0]].leaves)
    if unit.probability > groups.evidence.confidence or not set(nodes) <= set(_healthy_in_parts(groups, nodes)):
        leaves = ", ".join((first, *others))
        return f"{summary}, although its pairs are healthy: one of its nodes slows groups, or {leaves} under full load"
    sentences = (summary, "each of its nodes is healthy in large groups without some others of the unit")
    return BlamedPart(first, "slow", found, normal, (), 1, sentences, tuple(others), unit.probability)


def _healthy_in_parts(groups: _Groups, unit: Nodes) -> Iterator[str]:
    """Yield the nodes of a unit that were in healthy groups without all others of it."""
    for reading in groups.stragglers.counted:
        if not groups.readings.is_low(reading) and not set(unit) <= set(reading.nodes):
            yield from set(unit) & set(reading.nodes)


def _unclear_whole(groups: _Groups) -> Iterator[str]:
    """Yield why all nodes together are slow, if no node is the reason."""
    whole = groups.whole
    if whole is None or not groups.stragglers.nodes.isdisjoint(whole.nodes) or not _is_slow(groups, whole):
        return
    if all(run.trouble for run in groups.runs(whole)):
        return  # told by its own words
    runs, normal = groups.runs(whole), _normal(groups, whole)[0]
    summary = f"{len(whole.nodes)} nodes together: {_best(groups, whole):.3g} of {normal:.3g} GB/s, {_times(len(runs))}"
    reason = "smaller groups are alike: the cause is what joins them (the spine), or the size"
    yield summary if len(runs) < _TIMES else f"{summary}; {reason}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
