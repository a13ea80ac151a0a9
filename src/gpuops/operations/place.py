"""Placement of every rank of a layout on a GPU of a healthy node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from gpuops.assessment import lacks_gpus, profile_of
from gpuops.errors import LayoutError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.layout import RuleViolation, parse_layout, rule_violations
from gpuops.operations.health import Health, check_profiles, failing, health_of, quick_checks, quick_probes
from gpuops.placement import NodeShape, Placement, largest_domain, shape_of
from gpuops.placement import place as placed
from gpuops.probes.host.pcie import pcie
from gpuops.probes.nvidia.presence import NO_GPU
from gpuops.probes.nvidia.topo import topo
from gpuops.probing import Unknown
from gpuops.reasons import Excluded
from gpuops.requests import PlaceRequest
from gpuops.workspace import Workspace


@dataclass(frozen=True)
class Candidate:
    """Node that may hold ranks: its health, and its shape or why that is unknown."""

    shape: NodeShape | Unknown
    health: Health


def place(work: Workspace, request: PlaceRequest) -> Placement:
    """Place the layout; raise `LayoutError` if it breaks a rule or does not fit the nodes."""
    layout, work = parse_layout(request.layout, request.order), work.of_inventory()
    check_profiles(work.hosts, work.catalogue)
    candidates, excluded = _candidates(work, request)
    shapes = [c.shape for node, c in candidates.items() if node not in excluded and isinstance(c.shape, NodeShape)]
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


def _candidates(work: Workspace, request: PlaceRequest) -> tuple[dict[str, Candidate], dict[str, Excluded]]:
    """Return every node that answered, and the excluded nodes with the reasons, which are noted."""
    catalogue = work.catalogue
    checks = [] if request.all_nodes else quick_checks(catalogue)
    profiles = list(catalogue.profiles().values())

    def candidate(host: Host, facts: Facts) -> Candidate:
        shape = Unknown(NO_GPU) if lacks_gpus(facts) else shape_of(host, facts)
        return Candidate(shape, health_of(checks, facts, profile_of(host, facts, profiles)))

    gathered = work.nodes.read(quick_probes(catalogue, topo, pcie), candidate, facts=request.facts)
    gathered.raise_if_interrupted()
    candidates = gathered.values
    unhealthy = failing(checks, {node: candidate.health for node, candidate in candidates.items()})
    excluded = {**gathered.excluded, **unhealthy, **_defective(request, candidates)}
    for node, each in candidates.items():
        if isinstance(each.shape, Unknown):
            excluded.setdefault(node, Excluded(node, "unknown", each.shape.why))
    work.nodes.note_excluded(excluded.values())
    return candidates, excluded


def _defective(request: PlaceRequest, hosts: Collection[str]) -> dict[str, Excluded]:
    """Return the hosts that a measurement blames, in part or as a whole."""
    if request.measured is None:
        return {}
    parts: dict[str, list[str]] = {}
    for blamed in request.measured.blame.blamed:
        for part in (blamed.part, *blamed.alternatives):
            host = part.partition(":")[0]
            if host in hosts:
                parts.setdefault(host, []).append(part)
    return {
        host: Excluded(host, "defective", f"the all-reduce blames {', '.join(names)}") for host, names in parts.items()
    }
