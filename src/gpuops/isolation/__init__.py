"""The choice of all-reduce rounds, and the parts that the results of all rounds blame; pure.

Four nodes of 8 GPUs and 8 NICs share 8 leaves, and one NIC is 30 % slow. Here a `Simulation` measures them; on real
nodes `gpuops.collective` does, and collects the same evidence:

>>> from dataclasses import replace
>>> from gpuops.isolation.cabling import Cabling, build_fabric
>>> from gpuops.isolation.evidence import Measured
>>> from gpuops.isolation.faults import parse_fault
>>> from gpuops.isolation.simulation import QUIET, Simulation
>>> fabric = build_fabric(Cabling(nodes=4, gpus=8, unit=4, leaves=8))
>>> engine = Simulation(fabric, [parse_fault("gpu002:mlx5_3:slow=30", fabric)], replace(QUIET, noise=0))

Each round measures the NICs of a rail in pairs, with other partners each time. Both NICs of a slow pair are suspects
until one is fast with another partner; a NIC is blamed after four slow rounds. Line rate is 50 GB/s, of which an
all-reduce reaches 97 %:

>>> evidence = Evidence(fabric, scopes=("rail",))
>>> while planned := next_round(evidence):
...     results = engine.measure(planned)
...     evidence = replace(evidence, rounds=(*evidence.rounds, Measured(planned, results)))
...     fastest, slowest = max(r.gb_per_s for r in results), min(results, key=lambda r: r.gb_per_s)
...     print(f"{len(results)} pairs: {fastest:.1f} GB/s, but {slowest.gb_per_s:.1f} between", *slowest.group.nodes)
16 pairs: 48.5 GB/s, but 33.9 between gpu001 gpu002
16 pairs: 48.5 GB/s, but 33.9 between gpu002 gpu003
16 pairs: 48.5 GB/s, but 33.9 between gpu000 gpu002
16 pairs: 48.5 GB/s, but 33.9 between gpu001 gpu002

>>> (blamed,) = blame(evidence).blamed
>>> blamed.part, blamed.kind
('gpu002:mlx5_3', 'slow')
>>> blamed.evidence
('33.9 of 48.5 GB/s with 3 partners', 'its other 7 rails 48.5')
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpuops.isolation.blaming import blame as _blame_between
from gpuops.isolation.common import common_causes
from gpuops.isolation.coverage import far_too_slow, left_out, too_fast, without_impossible
from gpuops.isolation.evidence import Blame, BlamedPart, CommonCause, Evidence, Sentence
from gpuops.isolation.explained import located, without_explained
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.intra_node.searching import blame as _blame_intra_node
from gpuops.isolation.intra_node.searching import first_round as _first_intra_node
from gpuops.isolation.intra_node.searching import next_round as _next_intra_node
from gpuops.isolation.node_evidence import NodeEvidence, all_reduce, evidence_of
from gpuops.isolation.planning import max_rounds
from gpuops.isolation.planning import next_round as _next_between
from gpuops.isolation.remedies import action_for, fix_for, fix_in_common
from gpuops.isolation.rounds import Round
from gpuops.reasons import Excluded

__all__ = [
    "Blame",
    "BlamedPart",
    "CommonCause",
    "Evidence",
    "Excluded",
    "NodeEvidence",
    "action_for",
    "all_reduce",
    "blame",
    "evidence_of",
    "fix_for",
    "fix_in_common",
    "max_rounds",
    "next_round",
]

_ALIKE = 0.05
"""A part is as slow as the nodes with a cause in common if what they keep of the bandwidth differs by no more."""


def next_round(evidence: Evidence) -> Round | None:
    """Return the round to measure next; None if the plan is empty. All rounds inside nodes come first.

    Where nearly all nodes have the same fault, more rounds would show no more. Where some are slow alike, they are left
    out of further rounds, which show for each other node whether it is slow, or only all of its partners are.
    """
    evidence, _ = without_impossible(evidence)
    causes, rest = common_causes(evidence)
    if slow := frozenset(itertools.chain.from_iterable(cause.nodes for cause in causes if _is_of_some(cause))):
        rest = rest.without(slow)
    if slow or any(map(_ends_whole_nodes, causes)):
        rest = replace(rest, scopes=tuple(scope for scope in rest.scopes if scope in {"node", "rail"}))
    is_inside = not evidence.rounds or evidence.rounds[-1].round.scope == "node"
    is_shown = any(cause.where == "within nodes" and cause.kind != "slow" for cause in causes)
    first = _first_intra_node(evidence) if is_inside and not is_shown else None
    inside = first or (_next_intra_node(rest) if is_inside else None)
    if inside or any(_ends_rounds(cause) and not _is_of_some(cause) for cause in causes):
        return inside
    return _next_between(without_explained(rest, _blame_intra_node(rest).blamed), rest)


def _seen_as(part: str, fabric: Fabric) -> Iterator[str]:
    """Yield the names that a fault within a node also has between nodes: the node, or the NIC that serves the GPU."""
    yield part
    name, _, gpu = part.partition(":gpu")
    node = fabric.nodes[name]
    yield from (fabric.part(name, nic.rail) for k, nic in zip(node.gpus, node.nics, strict=False) if gpu == str(k))


def _ends_rounds(cause: CommonCause) -> bool:
    """Return True unless the cause is within nodes, or an evenly slow fabric, of which some parts may be slower."""
    return (
        cause.where == "between nodes"
        and cause.rail is None
        and not (cause.kind == "slow" and len(cause.nodes) == cause.tested)
    )


def _is_of_some(cause: CommonCause) -> bool:
    """Return True if it makes some nodes slow and others not, whatever the rail."""
    is_between = cause.where == "between nodes" and cause.rail is None
    return is_between and cause.kind == "slow" and len(cause.nodes) < cause.tested


def _ends_whole_nodes(cause: CommonCause) -> bool:
    """Return True if all transfers of whole nodes fail for this cause, on one rail or between units."""
    is_partial = cause.rail is not None or cause.where == "between units"
    return is_partial and cause.kind not in {"slow", "flapping"}


def blame(evidence: Evidence) -> Blame:
    """Return the parts that the evidence blames, within nodes and between them."""
    evidence, impossible = without_impossible(evidence)
    causes, rest = common_causes(evidence)
    inside = _blame_intra_node(rest)
    within = tuple(located(each, rest) for each in inside.blamed)
    between = _blame_between(without_explained(rest, inside.blamed))
    known = {(part, blamed.kind) for blamed in within for part in _seen_as(blamed.part, evidence.fabric)}
    shared = [each for each in between.blamed if any(_is_as_slow(each, cause) for cause in causes)]
    blamed = (*within, *(each for each in between.blamed if each not in shared and (each.part, each.kind) not in known))
    unsteady = [cause for cause in causes if cause.kind == "flapping"]
    missed = (
        () if any(_ends_rounds(cause) or _ends_whole_nodes(cause) for cause in causes) else left_out(evidence, blamed)
    )
    return Blame(
        blamed,
        between.contention,
        tuple(dict.fromkeys((*inside.suspects, *between.suspects))),
        (
            *inside.unclear,
            *between.unclear,
            *map(_of_the_cause, shared),
            *_with_slow_partners(evidence, rest, causes),
            *missed,
            *too_fast(impossible),
            *far_too_slow(evidence),
            *map(_other_traffic, unsteady),
        ),
        tuple(cause for cause in causes if cause not in unsteady),
    )


def _is_as_slow(blamed: BlamedPart, cause: CommonCause) -> bool:
    """Return True if nodes with a cause in common are as slow, so that the part's nodes may have it, too."""
    if not (_is_of_some(cause) and blamed.kind == "slow" and blamed.expected_gb_per_s and cause.expected_gb_per_s):
        return False
    kept = (blamed.found_gb_per_s or 0.0) / blamed.expected_gb_per_s
    return abs(kept - (cause.found_gb_per_s or 0.0) / cause.expected_gb_per_s) <= _ALIKE


def _with_slow_partners(evidence: Evidence, rest: Evidence, causes: Iterable[CommonCause]) -> Iterator[Sentence]:
    """Yield a sentence on the nodes of which ``rest`` has no result inside their unit: slow nodes explain them all."""
    slow = set(itertools.chain.from_iterable(cause.nodes for cause in causes if _is_of_some(cause)))
    names = [name for name in _measured_inside(evidence) - _measured_inside(rest) - slow if slow]
    if names:
        about = "measured inside their units only with nodes that have a cause in common, so they may have it, too"
        yield Sentence(f"{', '.join(sorted(names))}: {about}", sorted(names), about)


def _measured_inside(evidence: Evidence) -> set[str]:
    """Return the nodes with a speed on a rail that did not leave their unit."""
    groups = (f.group for m in evidence.rounds for f in m.figures if f.group.rail is not None and f.gb_per_s)
    unit_of = evidence.fabric.unit_of
    inside = (group.nodes for group in groups if len({unit_of.get(name) for name in group.nodes}) == 1)
    return set(itertools.chain.from_iterable(inside))


def _of_the_cause(blamed: BlamedPart) -> Sentence:
    about = "as slow as the nodes with a cause in common: more likely, all nodes behind have it, too"
    return Sentence(f"{blamed.part}: {about}", [blamed.part], about)


def _other_traffic(cause: CommonCause) -> str:
    """Return what is said of a rail that is slow for all nodes, but not to the same degree."""
    return f"{cause}; its results vary, so there is other traffic on it, and its parts cannot be judged"
