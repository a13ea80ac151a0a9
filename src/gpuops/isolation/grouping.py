"""Groups of many nodes, measured once their pairs are judged, and the bisection of a group that alone is slow.

First the nodes of each unit run together, then all nodes. A slow group runs again. If it stays slow although all of its
pairs are healthy, it is halved, and each half is filled up with healthy nodes so that the groups stay large, until a
half is one node. If both halves are healthy, no part is blamed: the cause is the size, or what joins them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Kind, Measured
from gpuops.isolation.intra_node import blame as blame_intra_node
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.spread import bound, failure_log_e, usual_share
from gpuops.isolation.suspects import Suspect, SuspectAnalysis

_SLOW = 0.85
"""Below this fraction of what smaller groups reached, a group is slow: larger groups may use another algorithm."""
_TIMES = 3
"""A group is slow if it was slow this many times: transient disturbances do not last."""
_LAST = 3
"""Among this many suspects, a half is a single node."""
_ONLY_WITH_IT = "only groups with this node are slow, although its pairs are healthy"
_LEAVES = "the leaf of each port is unknown (fabric:)"


def nodes_to_exclude(evidence: Evidence, analysis: SuspectAnalysis) -> set[str]:
    """Return the nodes that would slow a group down, from what is blamed or suspected already."""
    fabric, inside = evidence.fabric, blame_intra_node(evidence)
    nodes = {part.partition(":")[0] for blamed in inside.blamed for part in (blamed.part, *blamed.alternatives)}
    nodes |= {part.partition(":")[0] for part in inside.suspects}
    for suspect in (*analysis.confirmed, *analysis.open, *analysis.shared):
        nodes |= set(_nodes_affected_by(suspect, analysis))
    unexplained = Counter(n for r in analysis.unexplained for n in r.figure.group.nodes if n not in fabric.unit_of)
    return nodes | {name for name, count in unexplained.items() if count > 2}


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
    return _next_of_units(evidence, analysis) or _next_of_all(evidence, analysis)


def _rounds(evidence: Evidence) -> tuple[Measured, ...]:
    return tuple(measured for measured in evidence.rounds if measured.round.scope == "group")


def _units(evidence: Evidence) -> tuple[RankGroup, ...]:
    """Return the groups of units, which come first if there are several."""
    first = _rounds(evidence)[:1]
    return first[0].round.groups if first and len(first[0].round.groups) > 1 else ()


def _next_of_units(evidence: Evidence, analysis: SuspectAnalysis) -> Round | None:
    if not _rounds(evidence):
        excluded = nodes_to_exclude(evidence, analysis)
        units = [tuple(name for name in block if name not in excluded) for block in evidence.fabric.blocks]
        groups = tuple(RankGroup(names) for names in units if len(names) > 1)
        return Round("group", groups, "each unit together") if len(groups) > 1 else None
    again = tuple(unit for unit in _slow_units(evidence) if len(_runs(unit, evidence)) < _TIMES)
    if again:
        return Round("group", again, "units that were slow together, again")
    searches = [_search(unit, evidence) for unit in _slow_units(evidence)]
    groups = tuple(group for halves in searches if not halves.is_finished for group in halves.groups)
    return Round("group", groups, "half of a slow unit with nodes of others") if groups else None


def _search(unit: RankGroup, evidence: Evidence) -> _Halves:
    """Return the state of the search among the nodes of a slow unit; its halves are filled up from healthy units."""
    slow, size = _slow_units(evidence), len(unit.nodes)
    healthy = [name for group in _units(evidence) if group not in slow for name in group.nodes]
    start = size * slow.index(unit)
    fill = tuple(healthy[start : start + size])
    if len(fill) < size or not _all_mapped(unit, evidence):
        return _Halves(unit.nodes, (), is_finished=True)
    return _bisect(evidence, unit.nodes, fill)


def _slow_units(evidence: Evidence) -> list[RankGroup]:
    """Return the units that were slow in each of their runs; none if all were, because they share the cause."""
    units = _units(evidence)
    slow = [unit for unit in units if all(_is_slow(run, evidence) for run in _runs(unit, evidence))]
    return slow if len(slow) < len(units) else []


def _next_of_all(evidence: Evidence, analysis: SuspectAnalysis) -> Round | None:
    """Return the round of all healthy nodes together; the same again if that is slow, then its halves."""
    whole = _whole(evidence)
    if whole is None:
        excluded = nodes_to_exclude(evidence, analysis).union(*(unit.nodes for unit in _slow_units(evidence)))
        names = tuple(name for block in evidence.fabric.blocks for name in block if name not in excluded)
        is_measured = len(names) < 2 or RankGroup(names) in _units(evidence)
        return None if is_measured else Round("group", (RankGroup(names),), f"{len(names)} nodes together")
    if not _is_slow(whole, evidence):
        return None
    runs = _runs(whole.group, evidence)
    if len(runs) < _TIMES:
        return Round("group", (whole.group,), f"{len(whole.group.nodes)} nodes together, again")
    if not _all_mapped(whole.group, evidence):
        return None
    halves = _bisect(evidence, whole.group.nodes)
    if halves.is_finished or len(halves.suspects) < 2:
        return None
    return Round("group", halves.groups, f"search among {len(halves.suspects)} nodes: each half with others")


def _whole(evidence: Evidence) -> GroupResult | None:
    """Return the last run of all nodes together, if any; units and halves are several groups per round."""
    alone = [measured.figures[0] for measured in _rounds(evidence) if len(measured.figures) == 1]
    others = [figure for figure in alone if figure.group not in _units(evidence)]
    return others[-1] if others else None


def _all_mapped(group: RankGroup, evidence: Evidence) -> bool:
    """Return True if the leaves of all nodes are known; otherwise a leaf may be at fault that no pair showed."""
    return all(name in evidence.fabric.unit_of for name in group.nodes)


def _runs(group: RankGroup, evidence: Evidence) -> Sequence[GroupResult]:
    return _figures(_rounds(evidence)).get(group, ())


@functools.lru_cache(maxsize=16)
def _figures(rounds: tuple[Measured, ...]) -> dict[RankGroup, list[GroupResult]]:
    """Return the results of each group, the fastest group first."""
    figures_by_group: dict[RankGroup, list[GroupResult]] = {}
    for figure in (figure for measured in rounds for figure in measured.figures):
        figures_by_group.setdefault(figure.group, []).append(figure)
    return dict(sorted(figures_by_group.items(), key=lambda item: -_best(item[1])))


def _best(figures: Iterable[GroupResult]) -> float:
    return max(figure.gb_per_s or 0.0 for figure in figures)


def _is_slow(figure: GroupResult, evidence: Evidence) -> bool:
    """Return True if the group fails, or is slower than expected, or than the best unit if nothing is expected."""
    if figure.trouble:
        return True
    normal = _normal(figure.group, evidence)
    least = evidence.expected.get(figure.group, _SLOW * (normal or 0.0))
    return (figure.gb_per_s or 0.0) < least


def _normal(group: RankGroup, evidence: Evidence) -> float | None:
    """Return the GB/s that a group should reach: the expectation, else the best of other larger groups."""
    if group in evidence.expected:
        return evidence.expected[group]
    others = (item for item in _figures(_rounds(evidence)).items() if item[0] != group and len(item[0].nodes) > 2)
    return next((_best(figures) or None for _, figures in others), None)


@dataclass(frozen=True)
class _Halves:
    """State of a bisection: the nodes that are still suspect, the next groups, and whether it ended.

    ``are_healthy``: it ended because both halves are as fast as other groups.
    """

    suspects: tuple[str, ...]
    groups: tuple[RankGroup, ...]
    is_finished: bool = False
    are_healthy: bool = False


def _bisect(evidence: Evidence, suspects: tuple[str, ...], healthy: tuple[str, ...] = ()) -> _Halves:
    """Return the state after the halves of ``suspects`` that were run so far, filled up with ``healthy`` nodes.

    Halves that are alike, and the last ones, run as often as a slow group.
    """
    while len(suspects) > 1:
        middle = len(suspects) // 2
        parts = (suspects[:middle], suspects[middle:])
        half = len(healthy) // 2
        groups = (RankGroup((*parts[0], *healthy[:half])), RankGroup((*parts[1], *healthy[half:])))
        if min(len(group.nodes) for group in groups) < 2:
            return _Halves(suspects, (), is_finished=True)
        runs = [_runs(group, evidence) for group in groups]
        slow = [all(_is_slow(run, evidence) for run in group_runs) for group_runs in runs]
        needed = _TIMES if slow[0] == slow[1] or len(suspects) <= _LAST else 1
        if min(map(len, runs)) < needed:
            return _Halves(suspects, groups)
        if slow[0] == slow[1]:
            return _Halves(suspects, (), is_finished=True, are_healthy=not any(slow))
        suspects, healthy_half = parts if slow[0] else parts[::-1]
        healthy = (*healthy, *healthy_half)
    return _Halves(suspects, (), is_finished=True)


def blame_groups(evidence: Evidence) -> Blame:
    """Return what groups show but pairs do not."""
    blames = [_blame_unit(unit, evidence) for unit in _slow_units(evidence)]
    blames.append(_blame_whole(evidence))
    return Blame(
        tuple(part for one in blames for part in one.blamed),
        (),
        tuple(name for one in blames for name in one.suspects),
        tuple(sentence for one in blames for sentence in one.unclear),
    )


def _blame_unit(unit: RankGroup, evidence: Evidence) -> Blame:
    """Return the straggler of a unit that is slow although its pairs are healthy, or its leaves; else what is known."""
    runs, normal = _runs(unit, evidence), _normal(unit, evidence)
    name = evidence.fabric.unit_of.get(unit.nodes[0])
    where = f"unit {name}" if name else "one unit"
    summary = f"{len(unit.nodes)} nodes of {where} together: {_speed_in_words(runs[-1], normal)}, {len(runs)} times"
    if len(runs) < _TIMES or name is None:
        return Blame(unclear=(summary,))
    halves = _search(unit, evidence)
    if not halves.is_finished:
        return Blame(suspects=halves.suspects)
    leaves = [f"leaf:{leaf}" for leaf in evidence.fabric.nodes[unit.nodes[0]].leaves]
    if len(halves.suspects) == 1:
        parts, why = list(halves.suspects), _ONLY_WITH_IT
    elif halves.are_healthy and halves.suspects == unit.nodes:
        parts, why = leaves, "each half of the unit is healthy with nodes of other units"
    else:
        cause = f"one of {len(halves.suspects)} nodes slows large groups, or {', '.join(leaves)} under full load"
        return Blame(unclear=(f"{summary}, although its pairs are healthy: {cause}",))
    probability = _probability(unit, evidence)
    first, *others = parts
    evidence_in_words, last = (summary, why), runs[-1]
    blamed = BlamedPart(first, _kind(last), last.gb_per_s, normal, (), 1, evidence_in_words, tuple(others), probability)
    return Blame((blamed,))


def _probability(group: RankGroup, evidence: Evidence) -> float:
    """Return the bound on the chance that a healthy node makes ``group`` slow in all its runs, and the last halves."""
    slow = _slow_units(evidence)
    elsewhere = [run for unit in _units(evidence) if unit not in slow for run in _runs(unit, evidence)]
    usual = usual_share(sum(_is_slow(run, evidence) for run in elsewhere), len(elsewhere))
    slow_runs = len(_runs(group, evidence)) + _TIMES
    return bound(failure_log_e(slow_runs, slow_runs, usual), len(evidence.fabric.nodes))


def _speed_in_words(figure: GroupResult, normal: float | None) -> str:
    return "never ended" if figure.trouble else f"{figure.gb_per_s or 0.0:.3g} of {normal or 0.0:.3g} GB/s"


def _kind(figure: GroupResult) -> Kind:
    return figure.trouble or "slow"


def _blame_whole(evidence: Evidence) -> Blame:
    whole = _whole(evidence)
    if whole is None or not _is_slow(whole, evidence):
        return Blame()
    runs, normal = _runs(whole.group, evidence), _normal(whole.group, evidence)
    summary = f"{len(whole.group.nodes)} nodes together: {_speed_in_words(whole, normal)}, {len(runs)} times"
    if len(runs) < _TIMES:
        return Blame(unclear=(summary,))
    if not _all_mapped(whole.group, evidence):
        return Blame(unclear=(f"{summary}; {_LEAVES}",))
    halves = _bisect(evidence, whole.group.nodes)
    if len(halves.suspects) == 1:
        sentences, probability = (summary, _ONLY_WITH_IT), _probability(whole.group, evidence)
        node = BlamedPart(
            halves.suspects[0], _kind(whole), whole.gb_per_s, normal, evidence=sentences, probability=probability
        )
        return Blame((node,))
    if not halves.is_finished:
        return Blame(suspects=halves.suspects)
    reason = (
        f"both halves of {len(halves.suspects)} nodes are alike: the cause is what joins them (the spine), or the size"
    )
    return Blame(unclear=(f"{summary}; {reason}",))
