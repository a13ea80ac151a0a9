"""Health of nodes: a node that fails a quick check gets no rank and no load."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuops.assessment import compare, lacks_gpus, probes_for, profile_by_node
from gpuops.catalogue import Catalogue
from gpuops.errors import DocumentError, InputError, did_you_mean
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.judging import Check, Waiver, choose, judge_node, probes_of, waive
from gpuops.probes.nvidia.presence import NO_GPU
from gpuops.probing import Probe
from gpuops.profile import NO_PROFILE, Profile
from gpuops.reasons import Excluded
from gpuops.trends import least_gpus, past


def check_profiles(hosts: Iterable[Host], catalogue: Catalogue) -> None:
    """Raise `DocumentError` if a host's profile does not exist, or a waiver is wrong; called before any is asked."""
    catalogue.waivers()
    named = [host for host in hosts if host.profile is not None]
    names = list(catalogue.profiles()) if named else []
    for host in named:
        if host.profile not in names:
            hint = did_you_mean(host.profile or "", names) or f"; known: {', '.join(names)}"
            raise DocumentError(host.origin, f'{host.name}: unknown profile "{host.profile}"{hint}')


def check_required(catalogue: Catalogue) -> None:
    """Raise `InputError` if a profile requires a check that does not exist; called before any host is asked."""
    known = catalogue.checks()
    for profile in catalogue.profiles().values():
        for name in sorted(profile.required - set(known)):
            hint = did_you_mean(name, known) or "; to list them: gpuops checks list"
            raise InputError(f'profile {profile.name}: required names no check: "{name}"{hint}')


def quick_checks(catalogue: Catalogue, skip: Iterable[str] = ()) -> list[Check]:
    """Return the checks of the quick level, without those that ``skip`` names, by check or tag."""
    return choose(catalogue.checks(), "quick", skip=skip)


def quick_probes(catalogue: Catalogue, *more: Probe[Any], skip: Iterable[str] = ()) -> list[Probe[Any]]:
    """Return the probes that the quick checks need, and ``more``."""
    return list(dict.fromkeys([*probes_for(quick_checks(catalogue, skip)), *more]))


def profiles_of(hosts: Iterable[Host], facts_by_node: Mapping[str, Facts], catalogue: Catalogue) -> dict[str, Profile]:
    """Return the profile of each host that has facts."""
    return expected_of([host for host in hosts if host.name in facts_by_node], facts_by_node, catalogue)


def expected_of(hosts: Iterable[Host], facts_by_node: Mapping[str, Facts], catalogue: Catalogue) -> dict[str, Profile]:
    """Return the profile of each host: the one in the inventory, else the one that fits its GPUs, if known."""
    profiles, no_facts = list(catalogue.profiles().values()), Facts("", dt.datetime.now(dt.timezone.utc), {})
    host_by_name = {host.name: host for host in hosts}
    return profile_by_node(host_by_name, {name: facts_by_node.get(name, no_facts) for name in host_by_name}, profiles)


def without_gpus(facts_by_node: Mapping[str, Facts], profiles: Mapping[str, Profile]) -> dict[str, Excluded]:
    """Return the nodes without a GPU, of which nothing says that they should have any."""
    return {
        node: Excluded(node, "unknown", NO_GPU)
        for node, facts in facts_by_node.items()
        if lacks_gpus(facts) and not _should_have_gpus(facts, profiles[node])
    }


def _should_have_gpus(facts: Facts, profile: Profile) -> bool:
    is_declared, record = profile.name != NO_PROFILE.name or "gpu.count" in profile.values, facts[past]
    return is_declared or least_gpus(profile, record)[0] > 0


def unhealthy(
    facts_by_node: Mapping[str, Facts],
    profiles: Mapping[str, Profile],
    catalogue: Catalogue,
    skip: Iterable[str] = (),
    waivers: Sequence[Waiver] = (),
) -> dict[str, Excluded]:
    """Return the nodes that fail a quick check that is not skipped, each with the checks that it fails."""
    checks = quick_checks(catalogue, skip)
    health = {node: health_of(checks, facts_by_node[node], profile, waivers) for node, profile in profiles.items()}
    return failing(checks, health, waivers)


@dataclass(frozen=True)
class Health:
    """Checks that one node fails by itself, and the ``facts`` to compare it with others of its profile."""

    profile: Profile
    fails: tuple[str, ...]
    facts: Facts


def health_of(checks: Sequence[Check], facts: Facts, profile: Profile, waivers: Sequence[Waiver] = ()) -> Health:
    """Return the health of one node, small enough to pass between processes."""
    verdicts = waive(judge_node(checks, facts, profile), waivers)
    fails = tuple(verdict.check for verdict in verdicts if verdict.status == "fail")
    return Health(profile, fails, facts.only(probes_of(check for check in checks if check.scope == "group")))


def failing(
    checks: Sequence[Check], health_by_node: Mapping[str, Health], waivers: Sequence[Waiver] = ()
) -> dict[str, Excluded]:
    """Return the nodes that fail one of ``checks``, by themselves or compared with the others."""
    failed = {node: list(health.fails) for node, health in health_by_node.items()}
    profiles = {node: health.profile for node, health in health_by_node.items()}
    facts = {node: health.facts for node, health in health_by_node.items()}
    for verdict in waive(compare(checks, facts, profiles), waivers):
        if verdict.status == "fail" and verdict.node:
            failed[verdict.node].append(verdict.check)
    return {node: unhealthy_node(node, names) for node, names in failed.items() if names}


def unhealthy_node(node: str, checks: Sequence[str]) -> Excluded:
    """Return the exclusion of a node that fails ``checks``."""
    return Excluded(node, "unhealthy", f"fails {', '.join(checks)}", checks=tuple(checks))
