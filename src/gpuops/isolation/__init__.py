"""Isolation: which rounds of all-reduce to run next, and what the figures of all rounds accuse; pure.

Measuring is `gpuops.collective`'s and simulating `gpuops.isolation.simulation`'s: both feed the same evidence.
"""

from __future__ import annotations

from gpuops.isolation.blaming import blame as _blame_between
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence
from gpuops.isolation.node_evidence import NodeEvidence, all_reduce, evidence_of
from gpuops.isolation.planning import most_rounds
from gpuops.isolation.planning import next_round as _next_between
from gpuops.isolation.remedies import fix_for
from gpuops.isolation.rounds import Round
from gpuops.isolation.within import blame as _blame_within
from gpuops.isolation.within import next_round as _next_within
from gpuops.reasons import Excluded

__all__ = [
    "Blame",
    "BlamedPart",
    "Evidence",
    "Excluded",
    "NodeEvidence",
    "all_reduce",
    "blame",
    "evidence_of",
    "fix_for",
    "most_rounds",
    "next_round",
]


def next_round(evidence: Evidence) -> Round | None:
    """What to measure next; None where nothing is left to ask. Nodes by themselves come first, until all is asked."""
    inside = not evidence.rounds or evidence.rounds[-1].round.scope == "node"
    return (_next_within(evidence) if inside else None) or _next_between(evidence)


def blame(evidence: Evidence) -> Blame:
    """What the evidence says, within nodes and between them."""
    inside, between = _blame_within(evidence), _blame_between(evidence)
    named = {accusation.part for accusation in inside.accusations}
    return Blame(
        (*inside.accusations, *(accusation for accusation in between.accusations if accusation.part not in named)),
        between.contention,
        tuple(dict.fromkeys((*inside.suspects, *between.suspects))),
        (*inside.unclear, *between.unclear),
    )
