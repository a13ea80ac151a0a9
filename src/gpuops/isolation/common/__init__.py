"""What many nodes show alike, which blames none of their parts: found first, and taken out of the evidence.

A bad build of NCCL makes every node compute wrong sums, a missing network plugin sends every group over TCP, and an old
driver slows half of a fleet down. Each of these is one `CommonCause`, not a fault of every leaf.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gpuops.isolation.common.rails import SLOW, failing_rails, slow_rails, without_slow_rail
from gpuops.isolation.evidence import CommonCause, Evidence, Kind, Measured, Where
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.readings import deviation, level_of
from gpuops.isolation.rounds import GroupResult, RankGroup, own_words

_ENOUGH = 3
"""Fewer nodes have nothing in common: of two nodes, one faulty one gives both of them bad results."""
_MANY = 1 / 8
"""With faults in 1 of 100 nodes, more than this share of 64 nodes has one by chance in 1 of 1,000,000 fleets."""
_DEVIATIONS = 4
"""... and this many standard deviations below the level, if healthy nodes scatter more."""
_ALIKE, _ALIKE_RATIO = 0.04, 3 / 4
"""Slow nodes have a common cause if this share of them differs from their median by no more than this."""
_SO_MANY = 1 / 3
"""So many slow nodes have a common cause whatever their speeds: a fleet of several generations, for one."""
_NEARLY_ALL = 3 / 4
_FEW_LEAVES = 2
"""All nodes of a unit are slow on all rails because of a leaf only if the unit has no more leaves than this."""
_PARTNERS = 2
"""A node counts once it met this many others: with a single one, the other may be at fault."""


def common_causes(evidence: Evidence) -> tuple[tuple[CommonCause, ...], Evidence]:
    """Return the common causes, and the evidence without the results that they explain; all rounds stay."""
    causes, rest = [], evidence
    for slow in slow_rails(evidence):
        rest = without_slow_rail(rest, slow)
        causes += [slow.cause] if slow.is_finding else []
    for where in ("within nodes", "between nodes"):
        for cause in (*_troubles(rest, where), *_slowness(rest, where)):
            causes.append(cause)
            rest = _without(rest, cause)
        causes += _low(rest, where)
    for cause in failing_rails(rest):
        rest = _without(rest, cause)
        causes.append(cause)
    return tuple(causes), rest


def _without(evidence: Evidence, cause: CommonCause) -> Evidence:
    nodes = frozenset(cause.nodes)

    def explains(figure: GroupResult) -> bool:
        is_of_kind = not figure.trouble if cause.kind == "slow" else figure.trouble == cause.kind
        is_there = _where(figure) == cause.where or (
            cause.where == "between units" and evidence.fabric.leaves_block(figure.group.nodes)
        )
        of_whole_nodes = cause.kind != "slow" and figure.group.rail is None  # they use this rail, too
        is_on_rail = cause.rail in {None, figure.group.rail} or of_whole_nodes
        return is_of_kind and is_there and is_on_rail and not nodes.isdisjoint(figure.group.nodes)

    rounds = (measured.keeping(lambda figure: not explains(figure)) for measured in evidence.rounds)
    return replace(evidence, rounds=tuple(rounds))


def _where(figure: GroupResult) -> Where:
    return "within nodes" if len(figure.group.nodes) == 1 else "between nodes"


def _figures(evidence: Evidence, where: Where) -> Iterator[GroupResult]:
    return (figure for measured in evidence.rounds for figure in measured.figures if _where(figure) == where)


def _troubles(evidence: Evidence, where: Where) -> Iterator[CommonCause]:
    """Yield each trouble that half of the nodes have in all their results."""
    tried, failed = Counter[str](), dict[Kind, Counter[str]]()
    partners: dict[str, set[str]] = {}
    for figure in _figures(evidence, where):
        tried.update(figure.group.nodes)
        if figure.trouble:
            failed.setdefault(figure.trouble, Counter()).update(figure.group.nodes)
        for name in figure.group.nodes:
            partners.setdefault(name, set()).update(figure.group.nodes)
    least = 1 if where == "within nodes" else 1 + _PARTNERS  # each node is among its partners
    for trouble, counts in failed.items():
        nodes = tuple(name for name in evidence.fabric.nodes if counts[name] and counts[name] == tried[name])
        certain = tuple(name for name in nodes if len(partners[name]) >= least)
        is_open = (where, trouble) == ("within nodes", "wrong") and not _are_judged_in_pairs(nodes, evidence)
        of_two = _is_every_rail_of_two(nodes, evidence) and not is_open
        if _is_common(certain, len(tried) / 2, evidence.fabric, len(tried)) or of_two:
            own = [figure for figure in _figures(evidence, where) if figure.trouble == trouble]
            yield CommonCause(trouble, where, nodes, len(tried), _typical(own), evidence=own_words(own))


def _is_every_rail_of_two(nodes: Sequence[str], evidence: Evidence) -> bool:
    """Return True if two nodes fail together on several rails: more than one NIC is at fault, and not of one node."""
    return len(nodes) == len(evidence.fabric.nodes) == _PARTNERS and len(evidence.fabric.rails) > 1


def _are_judged_in_pairs(nodes: Sequence[str], evidence: Evidence) -> bool:
    """Return True if pairs of GPUs ran in each node, which tell a bad build from a GPU in each that miscounts.

    Two GPUs have no pairs that would tell.
    """
    paired = {figure.group.nodes[0] for figure in _figures(evidence, "within nodes") if figure.group.gpus}
    return all(name in paired or len(evidence.fabric.nodes[name].gpus) < 3 for name in nodes)


def _typical(figures: Iterable[GroupResult]) -> float | None:
    rates = [figure.gb_per_s for figure in figures if figure.gb_per_s]
    return statistics.median(rates) if rates else None


def _is_common(nodes: Sequence[str], least: float, fabric: Fabric, tested: int) -> bool:
    """Return True if there are enough ``nodes``, of which few leaves do not explain most."""
    if len(nodes) < max(_ENOUGH, least):
        return False
    return len(nodes) == tested or len(set(nodes) - _behind_few_leaves(frozenset(nodes), fabric)) >= max(_ENOUGH, least)


def _behind_few_leaves(nodes: frozenset[str], fabric: Fabric) -> set[str]:
    """Return the nodes of units that ``nodes`` nearly contain, if one or two leaves carry all traffic of each."""
    whole = [names for names in fabric.units.values() if len(nodes.intersection(names)) >= _NEARLY_ALL * len(names)]
    narrow = [names for names in whole if len(fabric.nodes[names[0]].leaves) <= _FEW_LEAVES]
    return {name for names in narrow for name in names} if len(narrow) <= max(1, len(fabric.units) // 8) else set()


def _slowness(evidence: Evidence, where: Where) -> Iterator[CommonCause]:
    """Yield the cause of more than an eighth of the nodes being slow to the same degree; others are their measure."""
    best_by_node = _best_within(evidence) if where == "within nodes" else _best_between(evidence)
    if len(best_by_node) <= _ENOUGH:
        return
    level = level_of(sorted(best_by_node.values()))
    edge = min(SLOW, 1 - _DEVIATIONS * deviation(best_by_node.values(), level)) * level
    slow = {node: best for node, best in best_by_node.items() if best < edge}
    fabric, tested = evidence.fabric, len(best_by_node)
    beside = set(slow) - _behind_few_leaves(frozenset(slow), fabric)  # as slow as those behind a leaf, so not for it
    is_common = _is_common(tuple(slow), _MANY * tested + 1, fabric, tested)
    if not slow or not (is_common or (len(beside) > 1 and 2 * len(slow) >= tested)):
        return
    middle = statistics.median(slow.values())
    alike = sum(abs(best / middle - 1) <= _ALIKE for best in slow.values())
    if len(slow) > _ENOUGH and (alike >= _ALIKE_RATIO * len(slow) or len(slow) > _SO_MANY * len(best_by_node)):
        scale = _scale(evidence, where)
        fast = best_by_node.keys() - slow.keys()
        nodes = _slow_with_fast(slow, fast, edge, evidence) if where == "between nodes" else tuple(slow)
        words = tuple(_unit_in_words(nodes, evidence.fabric))
        yield CommonCause("slow", where, nodes, len(best_by_node), scale * middle, scale * level, words)


def _slow_with_fast(slow: Collection[str], fast: Collection[str], edge: float, evidence: Evidence) -> tuple[str, ...]:
    """Return the ``slow`` nodes that were below ``edge`` of the line rate with a ``fast`` one of their unit.

    Another may be slow because all of its partners are, or the spine between it and a fast one is.
    """
    certain, fabric = set[str](), evidence.fabric
    for figure in _figures(evidence, "between nodes"):
        names = figure.group.nodes
        is_inside = figure.group.rail is not None and len({fabric.unit_of.get(name) for name in names}) == 1
        if is_inside and any(name in fast for name in names) and _of_line_rate(figure, fabric) < edge:
            certain |= set(names).intersection(slow)
    return tuple(name for name in slow if name in certain) or tuple(slow)


def _of_line_rate(figure: GroupResult, fabric: Fabric) -> float:
    """Return the GB/s of a rail's group as a fraction of the line rate; unknown rates count as 1 GB/s."""
    line = min(fabric.rates[node, figure.group.rail or 0] for node in figure.group.nodes)
    return (figure.gb_per_s or 0.0) / (line or 1.0)


def _unit_in_words(nodes: Collection[str], fabric: Fabric) -> Iterator[str]:
    """Yield the unit that all ``nodes`` are in, if there are others."""
    units = {fabric.unit_of.get(name) for name in nodes}
    if len(units) == 1 < len(fabric.units) and None not in units:
        unit = next(iter(filter(None, units)))
        yield f"all of them are in unit {unit}, which has {len(fabric.units[unit])} nodes"


def _best_within(evidence: Evidence) -> dict[str, float]:
    """Return the best GB/s of each node with all its GPUs, for the most common number of GPUs.

    Only rounds that measured nearly all nodes count: those that ran again may find a fabric that has warmed up since.
    """
    rounds = [_whole_nodes(measured) for measured in evidence.rounds]
    most = max(map(len, rounds), default=0)
    best: dict[str, float] = {}
    for rates in rounds:
        for name, rate in rates.items() if len(rates) > (1 - _MANY) * most else ():
            best[name] = max(rate, best.get(name, 0.0))
    usual = _usual_gpus(evidence)
    return {name: rate for name, rate in best.items() if len(evidence.fabric.nodes[name].gpus) == usual}


def _whole_nodes(measured: Measured) -> dict[str, float]:
    """Return the GB/s of each node whose GPUs all ran together in a round, by themselves."""
    figures = (f for f in measured.figures if len(f.group.nodes) == 1 and not f.group.gpus and not f.group.variant)
    return {f.group.nodes[0]: f.gb_per_s for f in figures if f.gb_per_s and not f.trouble}


def _usual_gpus(evidence: Evidence) -> int:
    return statistics.mode([len(node.gpus) for node in evidence.fabric.nodes.values()] or [0])


def _best_between(evidence: Evidence) -> dict[str, float]:
    """Return the median over each node's rails of the best fraction of the line rate that it reached.

    Only nodes that met two nodes of their unit count: others may be slow because their partners or the spine are.
    """
    best: dict[str, dict[int, float]] = {}
    neighbours: dict[str, set[str]] = {}
    unit_of = evidence.fabric.unit_of
    for figure in _figures(evidence, "between nodes"):
        rail = figure.group.rail
        if rail is not None and figure.gb_per_s and not figure.trouble:
            rate = _of_line_rate(figure, evidence.fabric)
            for node in figure.group.nodes:
                own = best.setdefault(node, {})
                own[rail] = max(rate, own.get(rail, 0.0))
                same_unit = (n for n in figure.group.nodes if n != node and unit_of.get(n, "") == unit_of.get(node))
                neighbours.setdefault(node, set()).update(same_unit)
    return {node: statistics.median(own.values()) for node, own in best.items() if len(neighbours[node]) >= _PARTNERS}


def _scale(evidence: Evidence, where: Where) -> float:
    """Return the GB/s that a value 1 of `_best_between` means."""
    return 1.0 if where == "within nodes" else statistics.mode(evidence.fabric.rates.values()) or 1.0


def _low(evidence: Evidence, where: Where) -> Iterator[CommonCause]:
    """Yield the cause of most results of nodes or rails being below what healthy ones reach at least."""
    found, expected = list[float](), list[float]()
    nodes: dict[str, None] = {}
    for figure in _figures(evidence, where):
        due = _expected(figure.group, evidence.expected)
        if due and figure.gb_per_s and not figure.trouble:
            found.append(figure.gb_per_s)
            expected.append(due)
            nodes |= dict.fromkeys(figure.group.nodes)
    if found and statistics.median(f / e for f, e in zip(found, expected, strict=True)) < 1:
        middle = statistics.median(found), statistics.median(expected)
        yield CommonCause("slow", where, tuple(nodes), len(nodes), *middle)


def _expected(group: RankGroup, expected: Mapping[RankGroup, float]) -> float | None:
    """Return what a whole node or a rail's group reaches at least; other groups are not judged here."""
    is_whole_node = len(group.nodes) == 1 and not group.gpus and not group.variant
    return expected.get(group) if is_whole_node or group.rail is not None else None
