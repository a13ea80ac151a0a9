"""Expected all-reduce bandwidth; hosts are asked only for what the inventory does not contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpuops.bandwidth import GIB, Efficiency
from gpuops.collective.expectations import Expectations, bandwidth_key
from gpuops.errors import InputError
from gpuops.facts import Facts
from gpuops.isolation.node_evidence import all_reduce, evidence_of, node_evidence_of
from gpuops.nodes import Gathered
from gpuops.operations.health import check_profiles, expected_of, without_gpus
from gpuops.operations.past.baselines import measured_here
from gpuops.probes.host.pci import pci_vendors
from gpuops.probes.nvidia.driver import driver
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.profile import Profile
from gpuops.requests import ExpectRequest
from gpuops.results.expectation import Expectation, host_class
from gpuops.workspace import Workspace

_OF_GPUS = (smi, pci_vendors, driver)


def expect(work: Workspace, request: ExpectRequest) -> Expectation:
    """Group the hosts by their expected bandwidth; a saved measurement provides the efficiencies."""
    work = work.of_inventory()
    if (request.nodes is not None and request.nodes < 1) or (request.gib is not None and request.gib <= 0):
        raise InputError("nodes must be at least 1, and gib more than 0")
    check_profiles(work.hosts, work.catalogue)
    gathered = _gathered(work, request)
    profiles = expected_of(work.hosts, gathered.values, work.catalogue)
    bare = without_gpus(gathered.values, {name: profiles[name] for name in gathered.values})
    for each in bare.values():
        work.note(f"{each.host}: {each.why}")
    hosts_by_kind: dict[tuple[str, int], list[str]] = {}
    for host in (host for host in work.hosts if host.name not in bare):
        profile = profiles[host.name]
        nics = sum(port.rail is not None for port in host.fabric.values()) or profile.get("nic.count", 0)
        hosts_by_kind.setdefault((bandwidth_key(profile), nics), []).append(host.name)
    efficiency = _efficiency(gathered.values, profiles)
    size_bytes = round(request.gib * GIB) if request.gib else None
    settings = (size_bytes, efficiency, request.operation)
    classes = tuple(
        host_class(tuple(names), profiles[names[0]], nics, request.nodes or len(names), *settings)
        for (_, nics), names in hosts_by_kind.items()
    )
    if request.operation == "all_reduce" and size_bytes is None:
        classes = tuple(replace(each, measured=measured_here(work, each.hosts)) for each in classes)
    return Expectation(classes, {**gathered.excluded, **bare}, gathered.interrupted)


def _gathered(work: Workspace, request: ExpectRequest) -> Gathered[Facts]:
    """Ask hosts for their GPUs, unless the inventory names every profile; note the hosts that do not answer."""
    if work.nodes.source == "saved":
        return work.nodes.gather([*_OF_GPUS, all_reduce], facts=request.facts)
    if all(host.profile is not None for host in work.hosts):
        return Gathered({}, {})
    gathered = work.nodes.gather(_OF_GPUS, facts=request.facts)
    for excluded in gathered.excluded.values():
        work.note(f"{excluded.host}: {excluded.why}")
    return gathered


def _efficiency(facts_by_node: Mapping[str, Facts], profiles: Mapping[str, Profile]) -> Efficiency:
    """Return the efficiencies of a saved measurement, else the prior."""
    evidence = evidence_of(node_evidence_of(facts_by_node)[0])
    return Expectations.as_measured(evidence, profiles).efficiency
