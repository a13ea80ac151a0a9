"""Grouping: groups of many nodes, once their pairs are judged, and the bisection of one that alone is slow.

The nodes of each unit together, then all together. What is slow once is run again; what stays slow though all of its
pairs are well is halved: each half is filled up with nodes that were well, so that the groups stay large, until a half
is one node. Halves that are both well accuse nobody: it is the size that is slow, or what joins them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Kind, Measured
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.suspects import Suspect, SuspectAnalysis
from gpuops.isolation.within import blame as blame_within

_SLOW = 0.85
"""Below this share of what is expected, or of what smaller groups gave, a group is slow: larger groups may use another
algorithm, and the model is no more exact."""
_TIMES = 3
"""A group is slow when it was so as often: what passes does not last."""
_LEAVES = "which leaf each port is cabled to is not known (fabric:)"


def spoiled(evidence: Evidence, suspicion: SuspectAnalysis) -> set[str]:
    """The nodes that a group would be slow for, for what is known or suspected already."""
    fabric, inside = evidence.fabric, blame_within(evidence)
    named = {part.partition(":")[0] for a in inside.accusations for part in (a.part, *a.alternatives)}
    named |= {part.partition(":")[0] for part in inside.suspects}
    for charge in (*suspicion.confirmed, *suspicion.open, *suspicion.shared):
        named |= set(_nodes_behind(charge, suspicion))
    vague = Counter(n for r in suspicion.unexplained for n in r.figure.group.nodes if n not in fabric.unit_of)
    return named | {name for name, count in vague.items() if count > 2}


def _nodes_behind(charge: Suspect, suspicion: SuspectAnalysis) -> Iterator[str]:
    fabric = suspicion.readings.fabric
    for part in (charge.part, *charge.alternatives):
        if part.kind == "leaf":
            yield from (node for node, _ in fabric.ports_of[part.owner])
        elif part.kind == "uplink":
            yield from fabric.units[part.owner]
        else:
            yield part.owner


def next_group_round(evidence: Evidence, suspicion: SuspectAnalysis) -> Round | None:
    """The next round of groups; None where all is well, or known."""
    if "group" not in evidence.scopes:
        return None
    return _next_of_units(evidence, suspicion) or _next_of_all(evidence, suspicion)


def _rounds(evidence: Evidence) -> tuple[Measured, ...]:
    return tuple(measured for measured in evidence.rounds if measured.round.scope == "group")


def _units(evidence: Evidence) -> tuple[RankGroup, ...]:
    """The groups of units, which come first where there are several."""
    first = _rounds(evidence)[:1]
    return first[0].round.groups if first and len(first[0].round.groups) > 1 else ()


def _next_of_units(evidence: Evidence, suspicion: SuspectAnalysis) -> Round | None:
    if not _rounds(evidence):
        bad = spoiled(evidence, suspicion)
        units = [tuple(name for name in block if name not in bad) for block in evidence.fabric.blocks]
        groups = tuple(RankGroup(names) for names in units if len(names) > 1)
        return Round("group", groups, "each unit together") if len(groups) > 1 else None
    slow = tuple(unit for unit in _slow_units(evidence) if len(_runs(unit, evidence)) < _TIMES)
    return Round("group", slow, "units that were slow together, again") if slow else None


def _slow_units(evidence: Evidence) -> list[RankGroup]:
    """The units that were slow whenever they ran."""
    return [unit for unit in _units(evidence) if all(_is_slow(run, evidence) for run in _runs(unit, evidence))]


def _next_of_all(evidence: Evidence, suspicion: SuspectAnalysis) -> Round | None:
    """All that are well together; again where that is slow, and then halves of it."""
    whole = _whole(evidence)
    if whole is None:
        bad = spoiled(evidence, suspicion).union(*(unit.nodes for unit in _slow_units(evidence)))
        names = tuple(name for block in evidence.fabric.blocks for name in block if name not in bad)
        is_told = len(names) < 2 or RankGroup(names) in _units(evidence)
        return None if is_told else Round("group", (RankGroup(names),), f"{len(names)} nodes together")
    if not _is_slow(whole, evidence):
        return None
    again = _runs(whole.group, evidence)
    if len(again) < _TIMES:
        return Round("group", (whole.group,), f"{len(whole.group.nodes)} nodes together, again")
    if not _all_mapped(whole.group, evidence):
        return None
    halves = _bisect(evidence, whole)
    if halves.done or len(halves.suspects) < 2:
        return None
    return Round("group", halves.groups, f"which of {len(halves.suspects)} nodes is it? Each half with others")


def _whole(evidence: Evidence) -> GroupResult | None:
    """The last run of all nodes together, if there was one: units and halves are several groups a round."""
    alone = [measured.figures[0] for measured in _rounds(evidence) if len(measured.figures) == 1]
    others = [figure for figure in alone if figure.group not in _units(evidence)]
    return others[-1] if others else None


def _all_mapped(group: RankGroup, evidence: Evidence) -> bool:
    """Whether all is known that the group's pairs passed; what they did not show may else be a leaf's fault."""
    return all(name in evidence.fabric.unit_of for name in group.nodes)


def _runs(group: RankGroup, evidence: Evidence) -> Sequence[GroupResult]:
    return _figures(_rounds(evidence)).get(group, ())


@functools.lru_cache(maxsize=16)
def _figures(rounds: tuple[Measured, ...]) -> dict[RankGroup, list[GroupResult]]:
    """The figures of each group, the fastest group first."""
    found: dict[RankGroup, list[GroupResult]] = {}
    for figure in (figure for measured in rounds for figure in measured.figures):
        found.setdefault(figure.group, []).append(figure)
    return dict(sorted(found.items(), key=lambda item: -_best(item[1])))


def _best(figures: Iterable[GroupResult]) -> float:
    return max(figure.gb_per_s or 0.0 for figure in figures)


def _is_slow(figure: GroupResult, evidence: Evidence) -> bool:
    """Whether the group is slower than expected, or than the best unit by itself where nothing is expected."""
    if figure.trouble == "error":
        return False
    normal = _normal(figure.group, evidence)
    return bool(figure.trouble) or (normal is not None and (figure.gb_per_s or 0.0) < _SLOW * normal)


def _normal(group: RankGroup, evidence: Evidence) -> float | None:
    """GB/s that the group should give: as expected, else as the fastest other group of more than two nodes."""
    if group in evidence.expected:
        return evidence.expected[group]
    others = (item for item in _figures(_rounds(evidence)).items() if item[0] != group and len(item[0].nodes) > 2)
    return next((_best(figures) or None for _, figures in others), None)


@dataclass(frozen=True)
class _Halves:
    """Where a bisection stands: who is still suspect, the groups that come next, and whether it ended."""

    suspects: tuple[str, ...]
    groups: tuple[RankGroup, ...]
    done: bool = False


def _bisect(evidence: Evidence, whole: GroupResult) -> _Halves:
    """Follow the halves that were run so far."""
    suspects, well = whole.group.nodes, tuple[str, ...]()
    while len(suspects) > 1:
        middle = len(suspects) // 2
        parts = (suspects[:middle], suspects[middle:])
        half = len(well) // 2
        groups = (RankGroup((*parts[0], *well[:half])), RankGroup((*parts[1], *well[half:])))
        if min(len(group.nodes) for group in groups) < 2:
            return _Halves(suspects, (), done=True)
        runs = [_runs(group, evidence) for group in groups]
        if not all(runs):
            return _Halves(suspects, groups)
        slow = [_is_slow(found[-1], evidence) for found in runs]
        if slow[0] == slow[1]:
            return _Halves(suspects, (), done=True)
        suspects, fine = parts if slow[0] else parts[::-1]
        well = (*well, *fine)
    return _Halves(suspects, (), done=True)


def blame_groups(evidence: Evidence) -> Blame:
    """What groups show that pairs do not."""
    units, whole = list(_blame_units(evidence)), _blame_whole(evidence)
    accusations = tuple(said for said in units if isinstance(said, BlamedPart))
    unclear = tuple(said for said in units if isinstance(said, str))
    return Blame((*accusations, *whole.accusations), (), whole.suspects, (*unclear, *whole.unclear))


def _blame_units(evidence: Evidence) -> Iterator[BlamedPart | str]:
    """Units that stay slow together though their pairs are well: their leaves are, under the load of all ports."""
    for unit in _slow_units(evidence):
        runs, normal = _runs(unit, evidence), _normal(unit, evidence)
        first, *others = evidence.fabric.nodes[unit.nodes[0]].leaves or ("",)
        told = f"{len(unit.nodes)} nodes of one unit together: {_told(runs[-1], normal)}, {len(runs)} times"
        if len(runs) < _TIMES or not _all_mapped(unit, evidence):
            yield told
        else:
            also = tuple(f"leaf:{leaf}" for leaf in others)
            said = (told, "its pairs are well, and so are other units")
            yield BlamedPart(f"leaf:{first}", _kind(runs[-1]), runs[-1].gb_per_s, normal, (), 1, said, also)


def _told(figure: GroupResult, normal: float | None) -> str:
    return "never ended" if figure.trouble else f"{figure.gb_per_s or 0.0:.3g} of {normal or 0.0:.3g} GB/s"


def _kind(figure: GroupResult) -> Kind:
    return "slow" if figure.trouble == "" or figure.trouble == "error" else figure.trouble  # noqa: PLR1714 - for mypy


def _blame_whole(evidence: Evidence) -> Blame:
    whole = _whole(evidence)
    if whole is None or not _is_slow(whole, evidence):
        return Blame()
    runs, normal = _runs(whole.group, evidence), _normal(whole.group, evidence)
    told = f"{len(whole.group.nodes)} nodes together: {_told(whole, normal)}, {len(runs)} times"
    if len(runs) < _TIMES:
        return Blame(unclear=(told,))
    if not _all_mapped(whole.group, evidence):
        return Blame(unclear=(f"{told}, and {_LEAVES}",))
    halves = _bisect(evidence, whole)
    if len(halves.suspects) == 1:
        said = (told, "only groups with this node are slow, though its pairs are well")
        return Blame((BlamedPart(halves.suspects[0], _kind(whole), whole.gb_per_s, normal, evidence=said),))
    if not halves.done:
        return Blame(suspects=halves.suspects)
    both = f"both halves of {len(halves.suspects)} nodes alike: what joins them (the spine), or the size"
    return Blame(unclear=(f"{told}, and {both}",))
