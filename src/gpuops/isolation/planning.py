"""The choice of the next round between nodes, from the evidence alone.

First rail by rail, each node with others of its unit and of other units; then the suspects, with healthy partners; then
full nodes in pairs; then groups. `intra_node` plans the rounds before these. There are never more than `max_rounds`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.groups.searching import next_group_round, nodes_to_exclude
from gpuops.isolation.intra_node.searching import MAX_ROUNDS as _MAX_INSIDE
from gpuops.isolation.intra_node.searching import blame as blame_intra_node
from gpuops.isolation.readings import Readings
from gpuops.isolation.retesting import has_one_nic, retest_round, uplinks_alone
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.isolation.suspects import SuspectAnalysis, find_suspects
from gpuops.isolation.sweeps import PairingScheme, pairing_schemes, pairs, sweep

_SCHEMES: tuple[PairingScheme, ...] = ("inside", "across", "inside", "across", "inside")
"""The sweeps in which each NIC is measured, each time with another partner, before any suspect is measured again."""
SWEEPS, _ALWAYS = len(_SCHEMES), 4
"""The first sweeps are measured in any case, the others while they bring new pairs."""
_ROUNDS_ALONE = 2
"""Rounds that show each uplink alone, so that no single disturbance makes it a suspect; with three units, one more for
the third pair of units: what all uplinks of a rail show is its spine."""
_MAX_CONFIRMING = 14
_FOR_UNLIKELY = 7
"""So many of these rounds are for NICs that were slow at times, even if healthy ones are likelier to show that."""
_MAX_PAIRINGS, _MAX_PAIRINGS_UNMAPPED = 5, 6
_MAX_WHOLE = 6


def max_rounds(fabric: Fabric) -> int:
    """Return the maximum number of rounds: inside nodes, rails, pairs, and groups with their halves."""
    halves = math.ceil(math.log2(max(2, len(fabric.nodes))))
    return _MAX_INSIDE + SWEEPS + _ROUNDS_ALONE + _MAX_CONFIRMING + _max_pairings(fabric) + _MAX_WHOLE + halves


def _max_pairings(fabric: Fabric) -> int:
    return _MAX_PAIRINGS if fabric.units else _MAX_PAIRINGS_UNMAPPED


def next_round(evidence: Evidence, measured: Evidence | None = None) -> Round | None:
    """Return the round to measure next; None if the plan is empty.

    If ``evidence`` lacks results of ``measured`` that are explained already, their groups are not measured again.
    """
    if len(evidence.rounds) >= max_rounds(evidence.fabric):
        return None
    return _next_between(evidence.without(_hanging(evidence)), _measured_groups(measured or evidence))


_Groups = frozenset[tuple[frozenset[str], int | None]]


def _measured_groups(measured: Evidence) -> _Groups:
    """Return the nodes and the rail of each group that has run, in any order of its nodes."""
    groups = (group for each in measured.rounds for group in each.round.groups)
    return frozenset((frozenset(group.nodes), group.rail) for group in groups)


def _hanging(evidence: Evidence) -> set[str]:
    """Return the nodes that hang by themselves: each round with one of them would last until its deadline."""
    hanging = {blamed.part for blamed in blame_intra_node(evidence).blamed if blamed.kind == "hang"}
    return hanging & set(evidence.fabric.nodes)


def _next_between(evidence: Evidence, measured: _Groups) -> Round | None:
    if len(evidence.fabric.nodes) < 2:
        return None
    planned = _next_sweep(evidence, measured) or _next_alone(evidence)
    if planned is not None:
        return planned
    analysis = find_suspects(evidence)
    return (
        _next_confirming(evidence, analysis, measured)
        or _next_pairing(evidence, analysis)
        or next_group_round(evidence, analysis)
    )


def _count_rounds(evidence: Evidence, scope: str) -> int:
    return sum(measured.round.scope == scope for measured in evidence.rounds)


def _next_sweep(evidence: Evidence, measured: _Groups) -> Round | None:
    count, planned = _count_rounds(evidence, "rail"), _sweeps(evidence.fabric)
    if "rail" not in evidence.scopes or count >= len(planned):
        return None
    turn = planned[count]
    return turn if turn.groups and (count < _ALWAYS or _is_new(turn, measured)) else None


@functools.lru_cache(maxsize=16)
def _sweeps(fabric: Fabric) -> Sequence[Round]:
    """Return the sweeps that may be measured; none if no rail joins two nodes."""
    schemes = [s for s in pairing_schemes(fabric) if any(sweep(fabric, s, turn).groups for turn in range(SWEEPS))]
    planned = [scheme if scheme in schemes else schemes[0] for scheme in _SCHEMES] if schemes else []
    return [sweep(fabric, scheme, planned[:count].count(scheme)) for count, scheme in enumerate(planned)]


def _next_alone(evidence: Evidence) -> Round | None:
    """Return single transfers between units if those of the sweeps disturbed one another, which hides a slow link."""
    rounds = tuple(each for each in evidence.rounds if each.round.scope == "rail")
    fabric = evidence.fabric
    if "rail" not in evidence.scopes or len(rounds) < _ALWAYS or len(fabric.units) < 2:
        return None
    is_last_new = _is_new(_sweeps(fabric)[-1], _measured_groups(replace(evidence, rounds=rounds[:_ALWAYS])))
    sweeps, count = SWEEPS if is_last_new else _ALWAYS, _ROUNDS_ALONE + (len(fabric.units) == 3)
    if len(rounds) >= sweeps + count or not Readings(replace(evidence, rounds=rounds[:sweeps])).are_crowded:
        return None
    planned = uplinks_alone(fabric, len(rounds))
    return planned if planned.groups else None


def _next_confirming(evidence: Evidence, analysis: SuspectAnalysis, measured: _Groups) -> Round | None:
    """Return a round for the suspects: a sweep for leaves, else pairs with healthy nodes; in turn for both."""
    count = _count_rounds(evidence, "rail")
    is_late = count >= SWEEPS + _ROUNDS_ALONE + _MAX_CONFIRMING and not _is_within_promise(evidence, analysis)
    if "rail" not in evidence.scopes or is_late:
        return None
    if count >= SWEEPS + _ROUNDS_ALONE + _FOR_UNLIKELY:
        analysis = replace(analysis, open=tuple(s for s in analysis.open if not s.flaps or s.certainty.log_e > 0))
    kinds = sorted({_RETEST_BY[suspect.part.kind] for suspect in analysis.open} - {"pair"})
    for turn in range(len(kinds)):
        is_sweep = kinds[(count + turn) % len(kinds)] == "sweep"
        planned = sweep(evidence.fabric, "inside", count) if is_sweep else retest_round(analysis, count)
        if is_sweep and any(map(has_one_nic, analysis.open)) and not _is_new(planned, measured):
            planned = retest_round(analysis, count)
        if planned.groups:
            return planned
    return None


def _is_within_promise(evidence: Evidence, analysis: SuspectAnalysis) -> bool:
    """Return True within 2 ceil(log2 N) + 6 rounds and four more for each fault: several faults take more rounds."""
    halves = math.ceil(math.log2(len(evidence.fabric.nodes)))
    return len(evidence.rounds) < 2 * halves + 6 + 4 * len(analysis.confirmed)


_RETEST_BY = {"leaf": "sweep", "uplink": "alone", "node": "alone", "nic": "alone", "together": "pair"}
"""How suspects are measured again: by a sweep inside units, or alone on what they cross."""


def _is_new(planned: Round, measured: _Groups) -> bool:
    """Return True if any of its groups has not run yet."""
    return any((frozenset(group.nodes), group.rail) not in measured for group in planned.groups)


def _next_pairing(evidence: Evidence, analysis: SuspectAnalysis) -> Round | None:
    """Return full nodes in pairs, of one unit if there are units; slow ones again with healthy partners."""
    count = _count_rounds(evidence, "pair")
    if "pair" not in evidence.scopes or count >= _max_pairings(evidence.fabric):
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
