"""The nodes that may hold ranks of a job, with their GPUs, and why others may not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gpuops.assessment import lacks_gpus, profile_of
from gpuops.collective.idleness.proof import FIRST, idleness_of
from gpuops.facts import Facts
from gpuops.inventory import Host
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
from gpuops.placement import SHAPE_PROBES, NodeShape, shape_of
from gpuops.probes.nvidia.presence import NO_GPU
from gpuops.probing import Unknown
from gpuops.profile import Profile
from gpuops.reasons import Excluded
from gpuops.requests import PlaceRequest
from gpuops.workspace import Workspace

_Shape = NodeShape | Unknown


@dataclass(frozen=True)
class _Candidate:
    """Node that may hold ranks: its health, its shape or why that is unknown, and who surely uses it."""

    shape: _Shape
    health: Health
    user: str = ""


class Chosen(NamedTuple):
    """The nodes that may hold ranks, in order, why others may not, and the profiles of those that were asked.

    ``users`` are what surely uses a node that was asked; of the nodes in ``recalled`` that is not known.
    """

    shapes: list[NodeShape]
    excluded: dict[str, Excluded]
    profiles: Mapping[str, Profile]
    users: Mapping[str, str]
    recalled: Collection[str]


def candidates_of(work: Workspace, request: PlaceRequest) -> Chosen:
    """Return the nodes that may hold ranks, and the excluded ones with the reasons, which are noted."""
    check_profiles(work.hosts, work.catalogue)
    recalled, excluded = _recalled(work, request)
    asked, more = _asked(work.of([host.name for host in work.hosts if host.name not in recalled]), request)
    candidates = {**recalled, **{node: each.shape for node, each in asked.items()}}
    excluded = _excluded(work, request, candidates, {**excluded, **more})
    shapes = [candidates[host.name] for host in work.hosts if host.name in candidates.keys() - excluded.keys()]
    usable = [shape for shape in shapes if isinstance(shape, NodeShape)]
    profiles = {node: each.health.profile for node, each in asked.items()}
    users = {node: each.user for node, each in asked.items() if each.user}
    return Chosen(usable, excluded, profiles, users, recalled.keys())


def _excluded(
    work: Workspace, request: PlaceRequest, candidates: Mapping[str, _Shape], excluded: dict[str, Excluded]
) -> dict[str, Excluded]:
    """Return the excluded nodes, also those that a measurement blames or of which the shape is unknown; note them."""
    excluded |= _defective(request, candidates)
    if not (request.all_nodes or request.facts):
        excluded |= blamed(work, candidates)
    for node, shape in candidates.items():
        if isinstance(shape, Unknown):
            excluded.setdefault(node, Excluded(node, "unknown", shape.why))
    work.nodes.note_excluded(excluded.values())
    return excluded


def _recalled(work: Workspace, request: PlaceRequest) -> tuple[dict[str, _Shape], dict[str, Excluded]]:
    """Return the nodes that a recent validation saw, and those of them that failed it; saved nodes are read again."""
    if request.facts or request.measured:
        return {}, {}
    known = recall(work, request.max_age)
    failed = {} if request.all_nodes else {node: each.fails for node, each in known.items() if each.fails}
    excluded = {node: unhealthy_node(node, checks) for node, checks in failed.items()}
    return {} if work.nodes.source == "saved" else {node: each.shape for node, each in known.items()}, excluded


def _asked(work: Workspace, request: PlaceRequest) -> tuple[dict[str, _Candidate], dict[str, Excluded]]:
    """Return the nodes that answer, and those that do not or that fail a quick check."""
    if not work.hosts:
        return {}, {}
    catalogue = work.catalogue
    checks = [] if request.all_nodes else quick_checks(catalogue)
    profiles, waivers = list(catalogue.profiles().values()), work.waivers()

    def candidate(host: Host, facts: Facts) -> _Candidate:
        shape = Unknown(NO_GPU) if lacks_gpus(facts) else shape_of(host, facts)
        profile = profile_of(host, facts, profiles)
        idleness = idleness_of(facts, profile)
        user = idleness.who if idleness.state == "busy" else ""
        return _Candidate(shape, health_of(checks, facts, profile, waivers), user)

    gathered = work.nodes.read(quick_probes(catalogue, *SHAPE_PROBES, *FIRST), candidate, facts=request.facts)
    gathered.raise_if_interrupted()
    unhealthy = failing(checks, {node: each.health for node, each in gathered.values.items()}, waivers)
    return dict(gathered.values), {**gathered.excluded, **unhealthy}


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
