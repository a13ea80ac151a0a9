"""Grouping: groups of many nodes, once their pairs are judged, and the bisection of one that alone is slow."""

from __future__ import annotations

from gpuops.isolation.within import blame as blame_within
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.rounds import Group, Round
from gpuops.isolation.suspicion import Suspicion


def spoiled(evidence: Evidence, suspicion: Suspicion) -> set[str]:
    """The nodes that a group would be slow for, for what is known or suspected already."""
    fabric = evidence.fabric
    inside = blame_within(evidence)
    named = {part.partition(":")[0] for a in inside.accusations for part in (a.part, *a.alternatives)}
    named |= set(inside.suspects)
    for charge in (*suspicion.confirmed, *suspicion.open):
        for part in (charge.part, *charge.alternatives):
            if part.kind == "leaf":
                named |= {node for node, _ in fabric.ports_of[part.owner]}
            elif part.kind == "uplink":
                named |= set(fabric.units[part.owner])
            else:
                named.add(part.owner)
    return named


def next_group_round(evidence: Evidence, suspicion: Suspicion) -> Round | None:
    if "group" not in evidence.scopes:
        return None
    done = sum(measured.round.scope == "group" for measured in evidence.rounds)
    bad = spoiled(evidence, suspicion)
    if done == 0:
        groups = [tuple(n for n in block if n not in bad) for block in evidence.fabric.blocks]
        return Round("group", tuple(Group(g) for g in groups if len(g) > 1), "units")
    if done == 1:
        whole = tuple(n for block in evidence.fabric.blocks for n in block if n not in bad)
        return Round("group", (Group(whole),), "all") if len(whole) > 1 else None
    return None
