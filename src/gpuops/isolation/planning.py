"""Planning: which round to run next, from the evidence alone.

First every node by itself; then rail by rail, each node with others of its unit and of other units; then what is
suspect, with partners that are well; then full nodes in pairs; then groups. Never more than `most_rounds` rounds.
"""

from __future__ import annotations

import math
from collections import Counter

from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.grouping import next_group_round, spoiled
from gpuops.isolation.parts import Part, parts_of
from gpuops.isolation.readings import Readings
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.isolation.suspects import Suspect, SuspectAnalysis, suspect
from gpuops.isolation.sweeps import pairs, sweep, ways
from gpuops.isolation.within import blame as blame_within

SWEEPS = 4
"""Rounds in which each NIC is measured before anything is asked again: each with another partner."""
_MOST_CONFIRMING = 8
_MOST_INSIDE = 9
_MOST_PAIRINGS = 4
_MOST_WHOLE = 4


def most_rounds(fabric: Fabric) -> int:
    """No measurement takes more rounds, whatever it finds: inside nodes, rails, pairs, and groups with their halves."""
    halves = math.ceil(math.log2(max(2, len(fabric.nodes))))
    return _MOST_INSIDE + SWEEPS + _MOST_CONFIRMING + _MOST_PAIRINGS + _MOST_WHOLE + halves


def next_round(evidence: Evidence) -> Round | None:
    """What to measure next; None where nothing is left to ask. Rounds inside slow nodes are `within`'s to plan."""
    if len(evidence.rounds) >= most_rounds(evidence.fabric):
        return None
    return _first_round(evidence) or _next_between(evidence.without(_hanging(evidence)))


def _hanging(evidence: Evidence) -> set[str]:
    """The nodes that never end by themselves already: each round with one of them would last until its deadline."""
    return {charge.part for charge in blame_within(evidence).accusations if charge.kind == "hang"} & set(
        evidence.fabric.nodes
    )


def _first_round(evidence: Evidence) -> Round | None:
    alone = tuple(RankGroup((node.name,)) for node in evidence.fabric.nodes.values() if len(node.gpus) > 1)
    if "node" not in evidence.scopes or _measured(evidence, "node") or not alone:
        return None
    return Round("node", alone, "every node by itself")


def _next_between(evidence: Evidence) -> Round | None:
    if len(evidence.fabric.nodes) < 2:
        return None
    swept = _next_sweep(evidence)
    if swept is not None:
        return swept
    suspicion = suspect(evidence)
    return (
        _next_confirming(evidence, suspicion)
        or _next_pairing(evidence, suspicion)
        or next_group_round(evidence, suspicion)
    )


def _measured(evidence: Evidence, scope: str) -> int:
    return sum(measured.round.scope == scope for measured in evidence.rounds)


def _next_sweep(evidence: Evidence) -> Round | None:
    done, possible = _measured(evidence, "rail"), ways(evidence.fabric)
    if "rail" not in evidence.scopes or done >= SWEEPS:
        return None
    turns = (possible[(done + turn) % len(possible)] for turn in range(len(possible)))
    planned = (sweep(evidence.fabric, way, done // len(possible)) for way in turns)
    return next((one for one in planned if one.groups), None)


def _next_confirming(evidence: Evidence, suspicion: SuspectAnalysis) -> Round | None:
    """What many share is asked by a sweep, a NIC or node by pairs with who is well; in turns where both are suspect."""
    done = _measured(evidence, "rail")
    if "rail" not in evidence.scopes or done >= SWEEPS + _MOST_CONFIRMING:
        return None
    kinds = sorted({_WAY_TO_ASK[charge.part.kind] for charge in suspicion.open} - {"pair"})
    for turn in range(len(kinds)):
        kind = kinds[(done + turn) % len(kinds)]
        planned = _pointed(suspicion) if kind == "pointed" else sweep(evidence.fabric, kind, done)
        if kind == "inside" and any(map(_is_by_one, suspicion.open)) and not _is_new(planned, evidence):
            planned = _pointed(suspicion)
        if planned.groups:
            return planned
    return None


_WAY_TO_ASK = {"leaf": "inside", "uplink": "across", "node": "pointed", "nic": "pointed", "together": "pair"}


def _is_new(planned: Round, evidence: Evidence) -> bool:
    """Whether any of its groups did not run yet, in whatever order of its nodes."""
    met = {(frozenset(group.nodes), group.rail) for done in evidence.rounds for group in done.round.groups}
    return any((frozenset(group.nodes), group.rail) not in met for group in planned.groups)


def _is_by_one(charge: Suspect) -> bool:
    """Whether all that was slow over a leaf passed one NIC, which then may be at fault as well."""
    return charge.part.kind == "leaf" and any(part.kind == "nic" for part in charge.alternatives)


def _pointed(suspicion: SuspectAnalysis) -> Round:
    """Each suspect with one partner on each of its rails, as many as can run at once."""
    fabric = suspicion.readings.fabric
    asked = [charge for charge in suspicion.open if charge.part.kind in {"node", "nic"} or _is_by_one(charge)]
    asked.sort(key=lambda charge: charge.part.kind == "leaf")  # last: a leaf's pair is alone on it
    taken: set[tuple[str, int]] = set()
    groups = []
    for charge in asked:
        for node, rail in _ports(charge, suspicion.readings):
            free = (n for n in _partners(charge, node, rail, suspicion) if (n, rail) not in taken)
            crowded = charge.part.kind == "leaf" and not taken.isdisjoint(fabric.ports_of[charge.part.owner])
            partner = None if crowded or (node, rail) in taken else next(free, None)
            if partner is not None:
                taken |= {(node, rail), (partner, rail)}
                groups.append(RankGroup((node, partner), rail))
    return Round("rail", tuple(groups), f"{len(asked)} suspects with partners that are well")


def _ports(charge: Suspect, readings: Readings) -> list[tuple[str, int]]:
    """The ports that ask for a charge, as node and rail: its own, or of a leaf's slow ones that which was asked least.

    One alone: several would share what the leaf has towards the spine, and be slow for that.
    """
    part, fabric = charge.part, readings.fabric
    if part.kind == "nic":
        return [(part.owner, part.number)]
    if part.kind == "node":
        return [(part.owner, nic.rail) for nic in fabric.nodes[part.owner].nics]
    slow = {(node, r.figure.group.rail) for r in charge.readings for node in r.figure.group.nodes}
    ports = [port for port in fabric.ports_of[part.owner] if port in slow]
    return sorted(ports, key=lambda port: sum(1 for _ in readings.of(Part("nic", *port))))[:1]


def _partners(charge: Suspect, node: str, rail: int, suspicion: SuspectAnalysis) -> list[str]:
    """Who may be paired with ``node``, the best first: new ones, of other units, over parts that are well.

    Where leaves are not known, those go first that were slow with others too: if what they share with the node is at
    fault, the two are well together.
    """
    fabric, readings = suspicion.readings.fabric, suspicion.readings
    others = [other for other in (*suspicion.open, *suspicion.confirmed) if other is not charge]
    hiding = {part for other in others if other.level <= charge.level for part in (other.part, *other.alternatives)}
    hiding.discard(Part("leaf", fabric.leaf_of.get((node, rail), "")))
    doubtful = {part for other in others for part in (other.part, *other.alternatives)}
    met = Counter(n for r in readings.of(Part("nic", node, rail)) for n in r.figure.group.nodes)
    seen = {fabric.block_of[name] for name in met}
    mapped = (node, rail) in fabric.leaf_of
    history = Counter[str]() if mapped else _history(node, rail, readings)

    def order(name: str) -> tuple[int, ...]:
        block = fabric.block_of[name]
        doubts = len(doubtful & parts_of(RankGroup((node, name), rail), fabric)) if mapped else 0
        return doubts, met[name], -history[name], block == fabric.block_of[node], block in seen

    names = list(fabric.nodes)
    start = names.index(node)
    able = [name for name in names[start + 1 :] + names[:start] if fabric.nodes[name].nic(rail)]
    if mapped:
        able = [name for name in able if not hiding & parts_of(RankGroup((node, name), rail), fabric)]
    if charge.part.kind == "leaf":
        able = [name for name in able if fabric.leaf_of.get((name, rail)) != charge.part.owner]
    return sorted(able, key=order)


def _history(node: str, rail: int, readings: Readings) -> Counter[str]:
    """How often others were slow on ``rail``, and not with ``node``."""
    slow = (r.figure.group for r in readings.slow)
    return Counter(name for group in slow if group.rail == rail and node not in group.nodes for name in group.nodes)


def _next_pairing(evidence: Evidence, suspicion: SuspectAnalysis) -> Round | None:
    """Full nodes in pairs, of one unit where there are units; those that are slow again with others that are well."""
    done = _measured(evidence, "pair")
    if "pair" not in evidence.scopes or done >= _MOST_PAIRINGS:
        return None
    fabric = evidence.fabric
    asked = {charge.part.owner for charge in suspicion.open if charge.part.kind == "together"}
    if done and not asked:
        return None
    bad = spoiled(evidence, suspicion) - asked
    way = ways(fabric)[0]
    wanted = (pair for pair in pairs(fabric, way, done) if not bad & set(pair) and (not done or asked & set(pair)))
    groups = tuple(RankGroup(pair) for pair in wanted if all(len(fabric.nodes[name].gpus) > 1 for name in pair))
    return Round("pair", groups, "full nodes in pairs") if groups else None
