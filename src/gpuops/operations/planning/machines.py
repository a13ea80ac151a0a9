"""The cluster that a job is planned for: of a catalogue, or of the hosts as they are and as they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpuops.assessment import profile_for
from gpuops.errors import LayoutError
from gpuops.operations.candidates import Chosen, candidates_of
from gpuops.operations.past.baselines import PAIR, RAIL, WITHIN, measured_here
from gpuops.operations.past.recall import accusations, note_fabric
from gpuops.operations.past.slow_parts import slow_parts
from gpuops.placement import NodeShape
from gpuops.planner.hardware import ClusterSpec, from_catalogue, from_nodes
from gpuops.planner.price import SlowPart, slowed
from gpuops.profile import Profile
from gpuops.reasons import Excluded
from gpuops.requests import PlaceRequest, PlanRequest
from gpuops.store.records import KeptFinding
from gpuops.trends.baselines import Baseline
from gpuops.workspace import Workspace


@dataclass(frozen=True)
class Machines:
    """The ``nodes`` that a job may use, as the ``cluster`` that they are, and the reasons against others.

    ``slow_parts`` were measured to be slow, in these nodes or in excluded ones. ``healthy`` is the cluster as it would
    be if those that are used were as their peers.
    """

    cluster: ClusterSpec
    healthy: ClusterSpec
    nodes: tuple[str, ...] = ()
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    slow_parts: tuple[SlowPart, ...] = ()


def machines_of(work: Workspace, request: PlanRequest) -> Machines:
    """Return the cluster of a catalogue, or that of the healthy hosts with what they were measured at."""
    if request.cluster:
        cluster = from_catalogue(request.cluster, work.catalogue.profiles())
        return Machines(cluster, cluster)
    work = work.of_inventory()
    found = candidates_of(work, PlaceRequest(all_nodes=request.all_nodes, facts=request.facts, max_age=request.max_age))
    shapes = [shape for shape in found.shapes if shape.gpus]
    if not shapes:
        raise LayoutError("no healthy node has a GPU that a job could use; gpuops validate says why")
    names = tuple(shape.name for shape in shapes)
    cluster = from_nodes(shapes, {shape.name: shape.gpu_name for shape in shapes}, _profile(work, shapes[0], found))
    if work.nodes.source == "saved" or request.facts is not None:
        return Machines(cluster, cluster, names, found.excluded)
    known = accusations(work)
    if request.all_nodes:  # else the choice of nodes has noted it
        note_fabric(work, known)
    return as_measured(work, cluster, names, found.excluded, known)


def with_storage(machines: Machines, request: PlanRequest) -> Machines:
    """Return ``machines`` with the host memory and the NVMe drives of a node that ``request`` states."""
    cluster, healthy = (
        each.with_storage(request.host_gib, request.nvme_gib) for each in (machines.cluster, machines.healthy)
    )
    return replace(machines, cluster=cluster, healthy=healthy)


def as_measured(
    work: Workspace,
    cluster: ClusterSpec,
    nodes: tuple[str, ...],
    excluded: Mapping[str, Excluded],
    known: Iterable[KeptFinding],
) -> Machines:
    """Return the machines of ``cluster``, which are ``nodes``, with what the store has of their links and slow parts.

    ``known`` are the findings of measurements that still hold, on these nodes or on ``excluded`` ones.
    """
    slow = tuple(slow_parts(work, known, {*nodes, *excluded}))
    used = [part for part in slow if part.node in nodes]
    healthy = _with_measurements(cluster, measured_here(work, nodes, used))
    return Machines(slowed(healthy, used), healthy, nodes, excluded, slow)


def _profile(work: Workspace, shape: NodeShape, found: Chosen) -> Profile:
    """Return the profile of a node: one that was asked showed it; of one that a validation saw, its GPUs are known."""
    if shape.name in found.profiles:
        return found.profiles[shape.name]
    host = next(host for host in work.hosts if host.name == shape.name)
    return profile_for(host, shape.gpu_name, len(shape.gpus), list(work.catalogue.profiles().values()))


def _with_measurements(cluster: ClusterSpec, here: Mapping[str, Baseline]) -> ClusterSpec:
    """Return the cluster with what its own all-reduces reached, of rails if there are any, else of two whole nodes.

    Two whole nodes share what all their NICs carry. Where NVLink joins nodes, neither says how fast the NICs are.
    """
    if within := here.get(WITHIN):
        source = f"measured here: median of {within.count} nodes"
        cluster = cluster.with_measurements(nvlink_gb_per_s=within.gb_per_s, source=source)
    between, sharing = (here[RAIL], 1) if RAIL in here else (here.get(PAIR), cluster.gpus_per_node)
    if between and cluster.domain_gpus <= cluster.gpus_per_node:
        source = f"measured here: median of {between.count} pairs"
        cluster = cluster.with_measurements(network_gb_per_s=between.gb_per_s / sharing, source=source)
    return cluster
