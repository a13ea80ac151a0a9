"""Groups of many nodes, measured once their pairs are judged, and the search for what slows only such groups down.

First the nodes of each unit run together, then groups of about 16 nodes side by side. While one of them is slower than
the others, its nodes are dealt to new groups, until one node is left that all slow groups share, or none. Then all
nodes run together. If that is much slower than smaller groups although those are alike, its halves are searched like
the groups of 16. If the halves are alike too, no part is blamed: the cause is the size, or what joins them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.groups.dealing import Deal, Nodes, even_groups
from gpuops.isolation.groups.view import GroupView
from gpuops.isolation.intra_node.searching import blame as blame_intra_node
from gpuops.isolation.parts import Part
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.isolation.suspects import SuspectAnalysis

TIMES = 3
"""All nodes together are slow if they were slow this many times: transient disturbances do not last."""
_MAX_UNIT_RUNS = 4
"""A unit that was slow in fewer runs may be undecided; in more, something else is at fault."""
_MOST_UNEXPLAINED = 1 / 8
"""Where more of the nodes are slow at times, the fabric is busy, and to leave them out would leave nothing to judge."""


def nodes_to_exclude(evidence: Evidence, analysis: SuspectAnalysis) -> set[str]:
    """Return the nodes that would slow a group down, from what is blamed or suspected already.

    Nodes behind slow uplinks are not among them if that would leave none: they run together inside their units.
    """
    fabric, inside = evidence.fabric, blame_intra_node(evidence)
    nodes = {part.partition(":")[0] for blamed in inside.blamed for part in (blamed.part, *blamed.alternatives)}
    nodes |= {part.partition(":")[0] for part in inside.suspects}
    parts = _possible_parts(analysis)
    nodes |= {name for part in parts if part.kind != "uplink" for name in _nodes_behind(part, fabric)}
    unexplained = Counter(n for r in analysis.unexplained for n in r.figure.group.nodes if n not in fabric.unit_of)
    often = {name for name, count in unexplained.items() if count > 2}
    nodes |= often if len(often) <= _MOST_UNEXPLAINED * len(fabric.nodes) else set()
    behind_uplinks = _behind_uplinks(parts, fabric)
    return nodes if nodes | behind_uplinks >= fabric.nodes.keys() else nodes | behind_uplinks


def _behind_uplinks(parts: Iterable[Part], fabric: Fabric) -> set[str]:
    return {name for part in parts if part.kind == "uplink" for name in _nodes_behind(part, fabric)}


def _possible_parts(analysis: SuspectAnalysis) -> set[Part]:
    likely = (suspect for suspect in analysis.open if not suspect.flaps or suspect.certainty.log_e > 0)
    suspects = (*analysis.confirmed, *likely, *analysis.shared)
    return {part for suspect in suspects for part in (suspect.part, *suspect.alternatives)}


def _nodes_behind(part: Part, fabric: Fabric) -> Iterable[str]:
    if part.kind == "leaf":
        return (node for node, _ in fabric.ports_of[part.owner])
    return fabric.units[part.owner] if part.kind == "uplink" else (part.owner,)


def next_group_round(evidence: Evidence, analysis: SuspectAnalysis) -> Round | None:
    """Return the next round of groups; None if all are healthy or judged."""
    if "group" not in evidence.scopes:
        return None
    groups = GroupView(evidence)
    excluded = nodes_to_exclude(evidence, analysis)
    healthy = [tuple(name for name in block if name not in excluded) for block in evidence.fabric.blocks]
    faults = len(analysis.confirmed) + len(blame_intra_node(evidence).blamed)
    if _behind_uplinks(_possible_parts(analysis), evidence.fabric) >= set().union(*healthy):
        return _first(groups, healthy) or _search(groups, faults)  # what crosses units is slow for a known reason
    return (
        _first(groups, healthy)
        or _search(groups, faults)
        or _whole(groups, healthy)
        or _whole_again(groups, faults)
        or _units_again(groups, faults)
    )


def _first(groups: GroupView, healthy: Sequence[Nodes]) -> Round | None:
    """Return the nodes of each unit together, then even groups, unless the units are such groups."""
    if not groups.rounds:
        units = [names for names in healthy if len(names) > 1]
        if len(units) == 1 and len(units[0]) >= 2 * TIMES:
            units = [units[0][: len(units[0]) // 2], units[0][len(units[0]) // 2 :]]
        if len(units) > 1:
            return Round("group", tuple(map(RankGroup, units)), "each unit together")
    bases = groups.bases if groups.rounds else even_groups(healthy)
    if len(bases) < 2 or all(groups.runs(RankGroup(base)) for base in bases):
        return None
    return Round("group", tuple(map(RankGroup, bases)), f"{len(bases)} groups of {max(map(len, bases))} nodes")


def _search(groups: GroupView, faults: int) -> Round | None:
    """Return new groups of the nodes that may be stragglers, while there are any and enough rounds."""
    stragglers = groups.stragglers
    if not stragglers.open or not _are_rounds_left(groups, faults):
        return None
    count = len({name for suspicion in stragglers.open for name in suspicion.near})
    return _deal(groups, f"search among {count} node{'s' * (count > 1)}")


def _are_rounds_left(groups: GroupView, faults: int) -> bool:
    """Return True within 2 ceil(log2 N) + 6 rounds and four more for each fault; the last one is for all nodes.

    However many rounds a noisy fabric took before, groups have ceil(log2 N) + 6.
    """
    is_likely = bool(groups.stragglers.open) or (groups.whole is not None and groups.is_below_its_size(groups.whole))
    faults += len(groups.stragglers.sure) + is_likely
    halves = math.ceil(math.log2(max(2, len(groups.fabric.nodes))))
    left = max(2 * halves + 6 + 4 * faults - len(groups.evidence.rounds), halves + 6 - len(groups.rounds))
    return left > (groups.whole is None)


def _deal(groups: GroupView, why: str) -> Round | None:
    deal = Deal(groups.fabric, groups.stragglers, len(groups.rounds))
    bases = groups.halves if groups.are_halves_searched else groups.bases
    if len(bases) > 1:
        dealt = deal.groups(bases)
        return Round("group", dealt, why) if dealt else None
    group = deal.all_but_some(bases[0])
    return Round("group", (group,), why) if group else None


def _units_again(groups: GroupView, faults: int) -> Round | None:
    """Return the units again if one was slow although no node of it is suspected."""
    confidence = groups.evidence.confidence
    is_open = any(unit.probability > confidence and len(unit.readings) < _MAX_UNIT_RUNS for unit in groups.slow_units)
    if not is_open or not _are_rounds_left(groups, faults):
        return None
    return Round("group", tuple(groups.units), "each unit together, again")


def _whole(groups: GroupView, healthy: Sequence[Nodes]) -> Round | None:
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


def _whole_again(groups: GroupView, faults: int) -> Round | None:
    """Return what follows if all nodes together are slow although no node is suspected."""
    whole = groups.whole
    is_explained = whole is None or not groups.stragglers.nodes.isdisjoint(whole.nodes)
    if whole is None or is_explained or not _are_rounds_left(groups, faults):
        return None
    return _other_groups(groups, whole) or (_repeat(groups, whole) if groups.is_slow(whole) else None)


def _other_groups(groups: GroupView, whole: RankGroup) -> Round | None:
    """Return other groups if the whole is slower than its size explains, or if two may both be slow."""
    is_new = len(groups.rounds[-1].round.groups) == 1 and len(groups.runs(whole)) == 1
    if not (groups.is_below_its_size(whole) or len(groups.bases) == 2) or not (is_new or len(groups.bases) == 1):
        return None
    return _deal(groups, "other groups, to compare")


def _repeat(groups: GroupView, whole: RankGroup) -> Round | None:
    """Return a slow whole again; at last its halves, if they are larger than the groups so far."""
    if len(groups.runs(whole)) < TIMES:
        return Round("group", (whole,), f"{len(whole.nodes)} nodes together, again")
    if groups.halves and not groups.are_halves_searched:
        return Round("group", tuple(map(RankGroup, groups.halves)), "each half of all nodes")
    return None
