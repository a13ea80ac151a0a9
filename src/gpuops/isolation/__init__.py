"""Isolation: which rounds of all-reduce to run next, and which parts the figures of all rounds blame; pure.

Measuring is `gpuops.collective`'s and simulating `gpuops.isolation.simulation`'s: both feed the same evidence.
"""

from __future__ import annotations

from gpuops.isolation.blaming import blame as _blame_between
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence
from gpuops.isolation.intra_node import blame as _blame_intra_node
from gpuops.isolation.intra_node import next_round as _next_intra_node
from gpuops.isolation.node_evidence import NodeEvidence, all_reduce, evidence_of
from gpuops.isolation.planning import max_rounds
from gpuops.isolation.planning import next_round as _next_between
from gpuops.isolation.remedies import fix_for
from gpuops.isolation.rounds import Round
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
    "max_rounds",
    "next_round",
]


def next_round(evidence: Evidence) -> Round | None:
    """Return the round to measure next; None if the plan is empty. All rounds inside nodes come first."""
    is_inside = not evidence.rounds or evidence.rounds[-1].round.scope == "node"
    return (_next_intra_node(evidence) if is_inside else None) or _next_between(evidence)


def blame(evidence: Evidence) -> Blame:
    """Return the parts that the evidence blames, within nodes and between them."""
    inside, between = _blame_intra_node(evidence), _blame_between(evidence)
    names = {blamed.part for blamed in inside.blamed}
    return Blame(
        (*inside.blamed, *(blamed for blamed in between.blamed if blamed.part not in names)),
        between.contention,
        tuple(dict.fromkeys((*inside.suspects, *between.suspects))),
        (*inside.unclear, *between.unclear),
    )
