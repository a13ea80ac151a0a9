"""Measurement of all GPU and network links of idle nodes, to find the slow parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuops.assessment import lacks_gpus
from gpuops.collective import measuring
from gpuops.collective.expectations import Expectations
from gpuops.collective.fabrics import NEEDS, fabric_of, leaves_of
from gpuops.collective.idleness.lease import Lease
from gpuops.collective.measurement import Measurement
from gpuops.collective.measuring import MeasureContext
from gpuops.collective.pool import Pool
from gpuops.collective.request import ENGINES, MeasureRequest
from gpuops.collective.session import Plan
from gpuops.errors import InputError
from gpuops.events import RoundStarted
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.isolation import blame, max_rounds, next_round
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.node_evidence import all_reduce, evidence_of, node_evidence_of
from gpuops.isolation.rounds import Round
from gpuops.lifecycle.scheduler import ProjectScheduler
from gpuops.operations.health import check_profiles, profiles_of, quick_probes, unhealthy
from gpuops.probes.nvidia.presence import NO_GPU
from gpuops.probing import Probe
from gpuops.profile import Profile
from gpuops.reasons import Excluded
from gpuops.workspace import Workspace


def measure(work: Workspace, request: MeasureRequest) -> Measurement:
    """Measure the hosts that pass the quick checks and are proved idle; for saved hosts, return the saved result."""
    return measure_asking(work, request, ())


def measure_asking(work: Workspace, request: MeasureRequest, more: Iterable[Probe[Any]]) -> Measurement:
    """Measure as `measure` does; the facts of the measurement include the answers to ``more``."""
    check_profiles(work.hosts, work.catalogue)
    if work.nodes.source == "saved":
        return _saved(work.of_inventory().of_saved(request.facts), request)
    check(work, request.force_busy)
    asked = list(dict.fromkeys([*probes(work), *more]))
    gathered = work.nodes.gather(asked, keep_answers=request.keep_answers, facts=request.facts)
    gathered.raise_if_interrupted()
    measurement = measure_known(work, request, gathered.values)
    return replace(measurement, excluded={**gathered.excluded, **measurement.excluded})


def check(work: Workspace, force_busy: Iterable[str]) -> None:
    """Raise `InputError` if ``force_busy`` names a host that is not selected; called before any host is asked."""
    unknown = ", ".join(sorted(set(force_busy) - {host.name for host in work.hosts}))
    if unknown:
        raise InputError(f"--force-busy: no selected node is named {unknown}; list single node names, not patterns")


def probes(work: Workspace, skip: Iterable[str] = ()) -> list[Probe[Any]]:
    """Return the probes to run before a measurement: for health, GPUs, NICs and the profile."""
    return quick_probes(work.catalogue, *NEEDS, skip=skip)


def measure_known(
    work: Workspace,
    request: MeasureRequest,
    facts_by_node: Mapping[str, Facts],
    *,
    plan: Plan = next_round,
    engines: Sequence[str] = ENGINES,
    skip: Iterable[str] = (),
) -> Measurement:
    """Measure the hosts that have facts; the measurement contains these facts and what it adds to them.

    ``plan`` chooses the next round, and the engine ``auto`` chooses from ``engines``. Checks in ``skip`` hold no host
    back.
    """
    hosts, profiles, excluded = healthy(work, facts_by_node, skip)
    work.nodes.activity("mapping the fabric")
    with pool_of(work, hosts) as pool, context_of(work) as context:
        fabric = fabric_for(pool, facts_by_node)
        measurement = measuring.measure(pool, fabric, profiles, request, context, plan=plan, engines=engines)
    measurement = replace(measurement, excluded={**excluded, **measurement.excluded})
    return replace(measurement, facts=measuring.with_evidence(facts_by_node, measurement))


def healthy(
    work: Workspace, facts_by_node: Mapping[str, Facts], skip: Iterable[str] = ()
) -> tuple[list[Host], dict[str, Profile], dict[str, Excluded]]:
    """Return the hosts that pass the quick checks but ``skip``, the profiles of all with facts, and why others fail."""
    profiles = profiles_of(work.hosts, facts_by_node, work.catalogue)
    excluded = unhealthy(facts_by_node, profiles, work.catalogue, skip, work.waivers())
    excluded |= {node: Excluded(node, "unsupported", NO_GPU) for node in _alone_without_gpu(facts_by_node)}
    return [host for host in work.hosts if host.name in profiles and host.name not in excluded], profiles, excluded


def _alone_without_gpu(facts_by_node: Mapping[str, Facts]) -> list[str]:
    """Return the only node if it has no GPU: there is nothing to measure within it, and no other node."""
    return [node for node, facts in facts_by_node.items() if len(facts_by_node) == 1 and lacks_gpus(facts)]


def fabric_for(pool: Pool, facts_by_node: Mapping[str, Facts]) -> Fabric:
    """Return the fabric between the nodes of ``pool``; ask nodes for its leaves if they may know them."""
    facts = {name: facts_by_node[name] for name in pool.hosts}
    return fabric_of(list(pool.hosts.values()), facts, leaves_of(pool, facts))


def pool_of(work: Workspace, hosts: Iterable[Host], forks: int | None = None) -> Pool:
    """Return a context manager that opens transports to ``hosts``."""
    return Pool(hosts, work.nodes.connections, forks or work.nodes.fitting(work.nodes.forks), work.nodes.cancel)


@contextlib.contextmanager
def context_of(
    work: Workspace, *, minutes: int = 60, scheduler: ProjectScheduler | None = None
) -> Iterator[MeasureContext]:
    """Open the project's scheduler and a lease of at most ``minutes``, and send progress as events."""
    with contextlib.ExitStack() as stack:
        scheduler = scheduler or stack.enter_context(work.scheduler())
        folder = work.project.store_path.parent / "leases"
        lease = Lease(work.project.lease, scheduler.slurm, work.note, folder, minutes)
        yield MeasureContext(
            scheduler.allocations,
            lease,
            scheduler.own_job,
            note=work.note,
            activity=work.nodes.activity,
            on_round=lambda evidence, planned: _round_started(work, evidence, planned),
        )


def _round_started(work: Workspace, evidence: Evidence, planned: Round) -> None:
    number, at_most = len(evidence.rounds) + 1, max_rounds(evidence.fabric)
    work.nodes.emit(RoundStarted(work.nodes.operation, number, planned.why, len(planned.groups), at_most))


def _saved(work: Workspace, request: MeasureRequest) -> Measurement:
    """Return the measurement that saved answers contain."""
    gathered = work.nodes.gather(quick_probes(work.catalogue, all_reduce), facts=request.facts)
    evidence_by_node, excluded = node_evidence_of(gathered.values)
    evidence = replace(evidence_of(evidence_by_node), confidence=request.confidence)
    engine = next((each.engine for each in evidence_by_node.values()), "none")
    profiles = profiles_of(work.hosts, gathered.values, work.catalogue)
    expectations = Expectations.as_measured(evidence, profiles)
    return Measurement(
        evidence,
        blame(evidence),
        engine,
        f"as saved in {work.nodes.folder}",
        {**gathered.excluded, **excluded},
        settings={node: each.settings for node, each in evidence_by_node.items()},
        expected={} if engine == "tcp" else expectations.of_evidence(evidence),
        facts=gathered.values,
    )
