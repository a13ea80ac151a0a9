"""Results between nodes that a part which is blamed within its node explains, so that they blame no other part; pure.

A GPU that computes wrong sums does so with the GPUs of its node, and with those of other nodes on the rail of its NIC.
That NIC, its leaf and the other ends are healthy. A node that is slow at times slows its transfers, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gpuops.isolation.evidence import BlamedPart, Evidence, Kind
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import GroupResult

_SPEEDS: Final[frozenset[Kind]] = frozenset({"slow", "flapping", "link-down"})
_Ports = set[tuple[str, int | None]]
"""Nodes and rails that a part takes part in; None stands for all GPUs of a node together."""


def gpu_of_rail(fabric: Fabric, node: str, rail: int) -> str | None:
    """Return the name of the GPU that is measured through the node's NIC on ``rail``; None if there is none."""
    own = fabric.nodes[node]
    return next((f"{node}:gpu{g}" for g, nic in zip(own.gpus, own.nics, strict=False) if nic.rail == rail), None)


def without_explained(evidence: Evidence, blamed: Sequence[BlamedPart]) -> Evidence:
    """Return the evidence without the results between nodes that ``blamed`` parts within nodes explain.

    These are failures of the same kind, and all speeds of a node that is slow at times: they tell nothing of others.
    """
    ports: dict[str, _Ports] = {}
    at_times = {each.part for each in blamed if each.kind == "flapping"} & evidence.fabric.nodes.keys()
    for each in blamed:
        if each.kind not in _SPEEDS:
            names = (each.part, *each.alternatives)
            ports.setdefault(each.kind, set()).update(p for name in names for p in _ports_of(name, evidence.fabric))
    if not ports and not at_times:
        return evidence

    def is_kept(figure: GroupResult) -> bool:
        of_it = len(figure.group.nodes) > 1 and not figure.trouble and not at_times.isdisjoint(figure.group.nodes)
        return not of_it and not _is_explained(figure, ports)

    rounds = (measured.keeping(is_kept) for measured in evidence.rounds)
    return replace(evidence, rounds=tuple(rounds))


def _ports_of(part: str, fabric: Fabric) -> Iterator[tuple[str, int | None]]:
    """Yield the node and each rail on which a node or GPU takes part in groups with other nodes."""
    node = part.partition(":")[0]
    yield node, None
    yield from (
        (node, nic.rail) for nic in fabric.nodes[node].nics if part in {node, gpu_of_rail(fabric, node, nic.rail)}
    )


def _is_explained(figure: GroupResult, ports: Mapping[str, _Ports]) -> bool:
    """Return True if a blamed part took part in a group that failed like it; absent members say who did not arrive."""
    group, own = figure.group, ports.get(figure.trouble, set())
    if not own or len(group.nodes) == 1:
        return False
    nodes = {name.partition(":")[0] for name in figure.absent} or {*group.nodes}
    return any((node, group.rail) in own for node in nodes)


def located(blamed: BlamedPart, evidence: Evidence) -> BlamedPart:
    """Return the part, or of two GPUs the one that its rail shows: one of two is at fault in all that they do.

    A GPU whose sums are right with another node is healthy; one whose sums are always wrong there is at fault.
    """
    gpus = (blamed.part, *blamed.alternatives)
    if blamed.kind != "wrong" or not all(":gpu" in name for name in gpus) or len(gpus) == 1:
        return blamed
    results = {name: list(_results(name, evidence)) for name in gpus}
    healthy = [name for name, own in results.items() if any(not figure.trouble for figure in own)]
    wrong = [name for name, own in results.items() if own and all(figure.trouble == "wrong" for figure in own)]
    found = wrong or [name for name in gpus if name not in healthy]
    if len(found) != 1:
        return blamed
    shown = f"its sums {'are wrong' if wrong else 'alone are not proved right'} with other nodes, too"
    return replace(blamed, part=found[0], alternatives=(), evidence=(*blamed.evidence, shown))


def _results(gpu: str, evidence: Evidence) -> Iterator[GroupResult]:
    """Yield the results of a GPU with other nodes on its rail."""
    node = gpu.partition(":")[0]
    for measured in evidence.rounds:
        for figure in measured.figures if measured.round.scope == "rail" else ():
            rail = figure.group.rail
            if node in figure.group.nodes and rail is not None and gpu_of_rail(evidence.fabric, node, rail) == gpu:
                yield figure
