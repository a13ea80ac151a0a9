"""Nodes that were asked for in pairs or groups and did not take part: they are named, so that none passes unseen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuops.isolation.evidence import BlamedPart, Evidence, Sentence
from gpuops.isolation.fabric import Fabric

_SCOPES = {"pair": "pairs", "group": "groups"}


def left_out(evidence: Evidence, blamed: Iterable[BlamedPart]) -> Iterator[Sentence]:
    """Yield a sentence on the nodes that took no part with all of their GPUs, without those that ``blamed`` names.

    A node takes no part if it was slow or failed before, because it would slow all others of its group.
    """
    scopes = [words for scope, words in _SCOPES.items() if scope in evidence.scopes]
    if not scopes or not any(measured.round.scope == "rail" for measured in evidence.rounds):
        return
    seen = {n for m in evidence.rounds if m.round.scope in _SCOPES for f in m.figures for n in f.group.nodes}
    known = {
        name for part in blamed for each in (part.part, *part.alternatives) for name in _behind(each, evidence.fabric)
    }
    nodes = [name for name in evidence.fabric.nodes if name not in seen and name not in known]
    if nodes:
        about = f"not measured in {' or '.join(scopes)}, because earlier results left them out"
        yield Sentence(f"{', '.join(nodes)}: {about}", nodes, about)


def _behind(part: str, fabric: Fabric) -> Iterable[str]:
    """Return the nodes that a part belongs to, or that it joins to others."""
    owner, _, name = part.partition(":")
    if owner == "leaf":
        return [node for node, _ in fabric.ports_of.get(name, ())]
    if owner == "unit":
        return fabric.units.get(name.partition("/")[0], ())
    return [owner]
