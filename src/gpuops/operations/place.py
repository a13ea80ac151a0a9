"""Placement of every rank of a layout on a GPU of a healthy node."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpuops.errors import LayoutError
from gpuops.inventory.names import node_set
from gpuops.layout import RuleViolation, parse_layout, rule_violations
from gpuops.placement import (
    LinkSpeeds,
    NodeShape,
    Placement,
    Tier,
    declared_shape,
    largest_domain,
    speeds_of,
    tier_of,
    usable_gpus,
)
from gpuops.placement import place as placed
from gpuops.reasons import Excluded
from gpuops.requests import PlaceRequest
from gpuops.workspace import Workspace


def place(work: Workspace, request: PlaceRequest) -> Placement:
    """Place the layout; raise `LayoutError` if it breaks a rule or does not fit the nodes."""
    parse_layout(request.layout, request.order, lambda layout: layout.ranks)  # before any node is asked
    work = work.of_inventory()
    nodes = _nodes(work, request)
    shapes, excluded = nodes.shapes, nodes.excluded
    speeds = speeds_of(_measured(request, shapes))
    if request.replaced:
        from gpuops.operations.replan import replan  # noqa: PLC0415 - it reads launch directories

        placement = replan(work, request, shapes, speeds)
    else:
        placement = _placed(work, request, shapes, speeds)
    for note in (*placement.notes, *nodes.in_use([node.name for node in placement.nodes])):
        work.note(note)
    return replace(placement, excluded={**placement.excluded, **excluded})


def _placed(work: Workspace, request: PlaceRequest, shapes: Sequence[NodeShape], speeds: LinkSpeeds) -> Placement:
    layout = parse_layout(request.layout, request.order, lambda layout: usable_gpus(layout, shapes))
    object_to(work, rule_violations(layout, gpus_per_domain=largest_domain(shapes) or layout.tp), force=request.force)
    return placed(layout, shapes, allow_fewer=request.allow_fewer, force=request.force, speeds=speeds)


def _measured(request: PlaceRequest, shapes: Iterable[NodeShape]) -> dict[Tier, float]:
    """Return the median bus bandwidth of a rail over each tier between nodes, in GB/s, as far as it was measured."""
    shape_by_name = {shape.name: shape for shape in shapes}
    found: dict[Tier, list[float]] = {}
    for measured in request.measured.evidence.rounds if request.measured else ():
        for figure in measured.figures:
            group = figure.group
            if figure.gb_per_s and group.rail is not None and shape_by_name.keys() >= set(group.nodes):
                tier = tier_of([shape_by_name[name] for name in group.nodes])
                found.setdefault(tier, []).append(figure.gb_per_s)
    return {tier: statistics.median(found[tier]) for tier in found if tier not in ("node", "domain")}


class _Nodes(NamedTuple):
    """The nodes that may hold ranks, and those that may not.

    ``users`` are what uses some of them, and of those in ``recalled`` that is not known.
    """

    shapes: Sequence[NodeShape]
    excluded: dict[str, Excluded]
    users: Mapping[str, str] = {}
    recalled: Collection[str] = ()

    def in_use(self, placed: Sequence[str]) -> Iterator[str]:
        """Yield what there is to say of the nodes that hold ranks: a busy one is used, because it may be free later."""
        if busy := [name for name in placed if name in self.users]:
            yield f"warning: in use: {node_set(busy)} ({busy[0]}: {self.users[busy[0]]}); the job would run beside that"
        if unknown := [name for name in placed if name in self.recalled]:
            yield f"whether something runs on {node_set(unknown)} is not known from that run"


def _nodes(work: Workspace, request: PlaceRequest) -> _Nodes:
    if request.gpus_by_node is not None:
        return _Nodes(_declared(work, request.gpus_by_node, request.max_age), {})
    from gpuops.operations.candidates import candidates_of  # noqa: PLC0415 - all checks, for nodes that are asked

    found = candidates_of(work, request)
    return _Nodes(found.shapes, found.excluded, found.users, found.recalled)


def _declared(work: Workspace, gpus_by_node: Mapping[str, int], max_age: float) -> list[NodeShape]:
    """Return the nodes as the request declares them; no node is asked."""
    if unknown := gpus_by_node.keys() - {host.name for host in work.hosts}:
        raise LayoutError(f"{min(unknown)}: not a host of {work.nodes.name}; gpus_by_node needs names of hosts")
    work.note("no node was asked: NVLink inside nodes is assumed, NCCL chooses the NICs")
    if work.project.store_path.exists():
        from gpuops.operations.past.recall import note_defective  # noqa: PLC0415 - all checks

        note_defective(work, gpus_by_node, max_age)
    return [declared_shape(host, gpus_by_node[host.name]) for host in work.hosts if host.name in gpus_by_node]


def object_to(work: Workspace, violations: Iterable[RuleViolation], *, force: bool) -> None:
    """Raise `LayoutError` for violations; note those that only warn or are forced."""
    refused = []
    for violation in violations:
        if violation.warning or (violation.forceable and force):
            work.note(f"{'warning' if violation.warning else 'forced'}: {violation.reason}")
        else:
            refused.append(violation.reason + ("; --force overrides this" if violation.forceable else ""))
    if refused:
        raise LayoutError("; ".join(refused))
