"""Placement of every rank of a layout on a GPU of a healthy node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from gpuops.assessment import lacks_gpus, profile_of
from gpuops.errors import LayoutError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.layout import RuleViolation, parse_layout, rule_violations
from gpuops.operations.health import (
    Health,
    check_profiles,
    failing,
    health_of,
    quick_checks,
    quick_probes,
    unhealthy_node,
)
from gpuops.operations.past.recall import blamed, recall
from gpuops.placement import NodeShape, Placement, largest_domain, shape_of
from gpuops.placement import place as placed
from gpuops.probes.host.pcie import pcie
from gpuops.probes.nvidia.presence import NO_GPU
from gpuops.probes.nvidia.topo import topo
from gpuops.probing import Unknown
from gpuops.reasons import Excluded
from gpuops.requests import PlaceRequest
from gpuops.workspace import Workspace

_Shape = NodeShape | Unknown


@dataclass(frozen=True)
class _Candidate:
    """Node that may hold ranks: its health, and its shape or why that is unknown."""

    shape: _Shape
    health: Health


def place(work: Workspace, request: PlaceRequest) -> Placement:
    """Place the layout; raise `LayoutError` if it breaks a rule or does not fit the nodes."""
    layout, work = parse_layout(request.layout, request.order), work.of_inventory()
    check_profiles(work.hosts, work.catalogue)
    candidates, excluded = _candidates(work, request)
    shapes = [shape for node, shape in candidates.items() if node not in excluded and isinstance(shape, NodeShape)]
    object_to(work, rule_violations(layout, gpus_per_domain=largest_domain(shapes) or layout.tp), force=request.force)
    placement = placed(layout, shapes, allow_fewer=request.allow_fewer, force=request.force)
    for note in placement.notes:
        work.note(note)
    return replace(placement, excluded=excluded)


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


def _candidates(work: Workspace, request: PlaceRequest) -> tuple[dict[str, _Shape], dict[str, Excluded]]:
    """Return every node that is known, in order, and the excluded nodes with the reasons, which are noted."""
    candidates, excluded = _recalled(work, request)
    asked, more = _asked(work.of([host.name for host in work.hosts if host.name not in candidates]), request)
    candidates, excluded = {**candidates, **asked}, {**excluded, **more}
    excluded |= _defective(request, candidates)
    if not (request.all_nodes or request.facts or work.nodes.source == "saved"):
        excluded |= blamed(work, candidates)
    for node, shape in candidates.items():
        if isinstance(shape, Unknown):
            excluded.setdefault(node, Excluded(node, "unknown", shape.why))
    work.nodes.note_excluded(excluded.values())
    return {host.name: candidates[host.name] for host in work.hosts if host.name in candidates}, excluded


def _recalled(work: Workspace, request: PlaceRequest) -> tuple[dict[str, _Shape], dict[str, Excluded]]:
    """Return the nodes that a recent validation saw, and those of them that failed it."""
    if request.facts or request.measured or work.nodes.source == "saved":
        return {}, {}
    known = recall(work, request.max_age)
    failed = {} if request.all_nodes else {node: each.fails for node, each in known.items() if each.fails}
    return {node: each.shape for node, each in known.items()}, {n: unhealthy_node(n, c) for n, c in failed.items()}


def _asked(work: Workspace, request: PlaceRequest) -> tuple[dict[str, _Shape], dict[str, Excluded]]:
    """Return the nodes that answer, and those that do not or that fail a quick check."""
    if not work.hosts:
        return {}, {}
    catalogue = work.catalogue
    checks = [] if request.all_nodes else quick_checks(catalogue)
    profiles, waivers = list(catalogue.profiles().values()), work.waivers()

    def candidate(host: Host, facts: Facts) -> _Candidate:
        shape = Unknown(NO_GPU) if lacks_gpus(facts) else shape_of(host, facts)
        return _Candidate(shape, health_of(checks, facts, profile_of(host, facts, profiles), waivers))

    gathered = work.nodes.read(quick_probes(catalogue, topo, pcie), candidate, facts=request.facts)
    gathered.raise_if_interrupted()
    unhealthy = failing(checks, {node: each.health for node, each in gathered.values.items()}, waivers)
    return {node: each.shape for node, each in gathered.values.items()}, {**gathered.excluded, **unhealthy}


def _defective(request: PlaceRequest, hosts: Collection[str]) -> dict[str, Excluded]:
    """Return the hosts that a measurement blames, in part or as a whole."""
    if request.measured is None:
        return {}
    parts: dict[str, list[str]] = {}
    for accused in request.measured.blame.blamed:
        for part in (accused.part, *accused.alternatives):
            host = part.partition(":")[0]
            if host in hosts:
                parts.setdefault(host, []).append(part)
    return {
        host: Excluded(host, "defective", f"the all-reduce blames {', '.join(names)}") for host, names in parts.items()
    }
