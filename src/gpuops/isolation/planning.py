"""The choice of the next round, from the evidence alone.

First every node by itself; then rail by rail, each node with others of its unit and of other units; then the suspects,
with healthy partners; then full nodes in pairs; then groups. There are never more than `max_rounds` rounds.
"""

from __future__ import annotations

import math
from collections import Counter

from gpuops.errors import format_count
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.grouping import next_group_round, nodes_to_exclude
from gpuops.isolation.intra_node import blame as blame_intra_node
from gpuops.isolation.parts import Part, parts_of
from gpuops.isolation.readings import Readings
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.isolation.suspects import Suspect, SuspectAnalysis, find_suspects
from gpuops.isolation.sweeps import pairing_schemes, pairs, sweep

SWEEPS = 4
"""Rounds in which each NIC is measured, each time with another partner, before any suspect is measured again."""
_MAX_CONFIRMING = 8
_MAX_INSIDE = 11
_MAX_PAIRINGS = 4
_MAX_WHOLE = 4


def max_rounds(fabric: Fabric) -> int:
    """Return the maximum number of rounds: inside nodes, rails, pairs, and groups with their halves."""
    halves = math.ceil(math.log2(max(2, len(fabric.nodes))))
    return _MAX_INSIDE + SWEEPS + _MAX_CONFIRMING + _MAX_PAIRINGS + _MAX_WHOLE + halves


def next_round(evidence: Evidence) -> Round | None:
    """Return the round to measure next; None if the plan is empty. `intra_node` plans the rounds inside slow nodes."""
    if len(evidence.rounds) >= max_rounds(evidence.fabric):
        return None
    return _first_round(evidence) or _next_between(evidence.without(_hanging(evidence)))


def _hanging(evidence: Evidence) -> set[str]:
    """Return the nodes that hang by themselves: each round with one of them would last until its deadline."""
    hanging = {blamed.part for blamed in blame_intra_node(evidence).blamed if blamed.kind == "hang"}
    return hanging & set(evidence.fabric.nodes)


def _first_round(evidence: Evidence) -> Round | None:
    alone = tuple(RankGroup((node.name,)) for node in evidence.fabric.nodes.values() if len(node.gpus) > 1)
    if "node" not in evidence.scopes or _count_rounds(evidence, "node") or not alone:
        return None
    return Round("node", alone, "every node by itself")


def _next_between(evidence: Evidence) -> Round | None:
    if len(evidence.fabric.nodes) < 2:
        return None
    planned = _next_sweep(evidence)
    if planned is not None:
        return planned
    analysis = find_suspects(evidence)
    return (
        _next_confirming(evidence, analysis)
        or _next_pairing(evidence, analysis)
        or next_group_round(evidence, analysis)
    )


def _count_rounds(evidence: Evidence, scope: str) -> int:
    return sum(measured.round.scope == scope for measured in evidence.rounds)


def _next_sweep(evidence: Evidence) -> Round | None:
    count, schemes = _count_rounds(evidence, "rail"), pairing_schemes(evidence.fabric)  # the schemes alternate
    if "rail" not in evidence.scopes or count >= SWEEPS:
        return None
    turns = (schemes[(count + turn) % len(schemes)] for turn in range(len(schemes)))
    planned = (sweep(evidence.fabric, scheme, count // len(schemes)) for scheme in turns)
    return next((sweep_round for sweep_round in planned if sweep_round.groups), None)


def _next_confirming(evidence: Evidence, analysis: SuspectAnalysis) -> Round | None:
    """Return a round for the suspects: a sweep for shared parts, else pairs with healthy nodes; in turn for both."""
    count = _count_rounds(evidence, "rail")
    if "rail" not in evidence.scopes or count >= SWEEPS + _MAX_CONFIRMING:
        return None
    kinds = sorted({_RETEST_BY[suspect.part.kind] for suspect in analysis.open} - {"pair"})
    for turn in range(len(kinds)):
        kind = kinds[(count + turn) % len(kinds)]
        planned = _targeted_round(analysis) if kind == "targeted" else sweep(evidence.fabric, kind, count)
        if kind == "inside" and any(map(_has_one_nic, analysis.open)) and not _is_new(planned, evidence):
            planned = _targeted_round(analysis)
        if planned.groups:
            return planned
    return None


_RETEST_BY = {"leaf": "inside", "uplink": "across", "node": "targeted", "nic": "targeted", "together": "pair"}


def _is_new(planned: Round, evidence: Evidence) -> bool:
    """Return True if any of its groups has not run yet, in any order of its nodes."""
    groups = (group for measured in evidence.rounds for group in measured.round.groups)
    measured_keys = {(frozenset(group.nodes), group.rail) for group in groups}
    return any((frozenset(group.nodes), group.rail) not in measured_keys for group in planned.groups)


def _has_one_nic(suspect: Suspect) -> bool:
    """Return True if all that was slow over a leaf crossed one NIC, which then may be at fault as well."""
    return suspect.part.kind == "leaf" and any(part.kind == "nic" for part in suspect.alternatives)


def _targeted_round(analysis: SuspectAnalysis) -> Round:
    """Pair each suspect with one partner on each of its rails, as many as can run at once."""
    fabric = analysis.readings.fabric
    suspects = [suspect for suspect in analysis.open if suspect.part.kind in {"node", "nic"} or _has_one_nic(suspect)]
    suspects.sort(key=lambda suspect: suspect.part.kind == "leaf")  # last, because a leaf's pair runs alone on it
    busy_ports: set[tuple[str, int]] = set()
    groups = []
    for suspect in suspects:
        for node, rail in _ports(suspect, analysis.readings):
            free = (n for n in _partners(suspect, node, rail, analysis) if (n, rail) not in busy_ports)
            own_ports = fabric.ports_of[suspect.part.owner] if suspect.part.kind == "leaf" else [(node, rail)]
            partner = next(free, None) if busy_ports.isdisjoint(own_ports) else None
            if partner is not None:
                busy_ports |= {(node, rail), (partner, rail)}
                groups.append(RankGroup((node, partner), rail))
    return Round("rail", tuple(groups), f"{format_count(len(suspects), 'suspect')} with healthy partners")


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


def _partners(suspect: Suspect, node: str, rail: int, analysis: SuspectAnalysis) -> list[str]:
    """Return possible partners of ``node``, the best first: new ones, from other units, over healthy parts.

    If leaves are unknown, nodes that were also slow with others come first: if what they share with the node is at
    fault, the two are healthy together.
    """
    fabric, readings = analysis.readings.fabric, analysis.readings
    others = [other for other in (*analysis.open, *analysis.confirmed) if other is not suspect]
    worse = [other for other in others if other.level <= suspect.level]
    masking_parts = {part for other in worse for part in (other.part, *other.alternatives)}
    masking_parts.discard(Part("leaf", fabric.leaf_of.get((node, rail), "")))
    suspected_parts = {part for other in others for part in (other.part, *other.alternatives)}
    times_met = Counter(n for r in readings.of(Part("nic", node, rail)) for n in r.figure.group.nodes)
    blocks_met = {fabric.block_of[name] for name in times_met}
    is_mapped = (node, rail) in fabric.leaf_of
    times_slow = Counter[str]() if is_mapped else _times_slow(node, rail, readings)

    def order(name: str) -> tuple[int, ...]:
        block = fabric.block_of[name]
        crossed = parts_of(RankGroup((node, name), rail), fabric) if is_mapped else frozenset()
        same_block, known_block = block == fabric.block_of[node], block in blocks_met
        return len(suspected_parts & crossed), times_met[name], -times_slow[name], same_block, known_block

    names = list(fabric.nodes)
    start = names.index(node)
    candidates = [name for name in names[start + 1 :] + names[:start] if fabric.nodes[name].nic(rail)]
    if is_mapped:
        candidates = [n for n in candidates if not masking_parts & parts_of(RankGroup((node, n), rail), fabric)]
    if suspect.part.kind == "leaf":
        candidates = [name for name in candidates if fabric.leaf_of.get((name, rail)) != suspect.part.owner]
    return sorted(candidates, key=order)


def _times_slow(node: str, rail: int, readings: Readings) -> Counter[str]:
    """Count how often others were slow on ``rail`` without ``node``."""
    slow = (r.figure.group for r in readings.slow)
    return Counter(name for group in slow if group.rail == rail and node not in group.nodes for name in group.nodes)


def _next_pairing(evidence: Evidence, analysis: SuspectAnalysis) -> Round | None:
    """Return full nodes in pairs, of one unit if there are units; slow ones again with healthy partners."""
    count = _count_rounds(evidence, "pair")
    if "pair" not in evidence.scopes or count >= _MAX_PAIRINGS:
        return None
    fabric = evidence.fabric
    suspected_nodes = {suspect.part.owner for suspect in analysis.open if suspect.part.kind == "together"}
    if count and not suspected_nodes:
        return None
    excluded = nodes_to_exclude(evidence, analysis) - suspected_nodes
    healthy_pairs = (pair for pair in pairs(fabric, pairing_schemes(fabric)[0], count) if not excluded & set(pair))
    useful_pairs = (pair for pair in healthy_pairs if not count or suspected_nodes & set(pair))
    groups = tuple(RankGroup(pair) for pair in useful_pairs if all(len(fabric.nodes[name].gpus) > 1 for name in pair))
    return Round("pair", groups, "full nodes in pairs") if groups else None
