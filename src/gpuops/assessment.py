"""Assessment: the facts of many nodes, each under its own profile, to one list of verdicts; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.judging import Check, Verdict, judge_group, judge_node, probes_of
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Probe, Unknown
from gpuops.profile import NO_PROFILE, Profile, detect


def probes_for(checks: Iterable[Check]) -> list[Probe[Any]]:
    """What must be asked: what the checks need, and what tells an unnamed machine's profile."""
    return list(dict.fromkeys([*probes_of(checks), smi]))


def profile_of(host: Host, facts: Facts, profiles: Sequence[Profile]) -> Profile:
    """The profile that ``host`` names, else the one that its GPUs fit, with the host's own ``expect:`` on top."""
    named = next((p for p in profiles if p.name == host.profile), None)
    profile = named or (_detected(facts, profiles) if host.profile is None else NO_PROFILE)
    rails = sorted(name for name, port in host.fabric.items() if port.rail is not None)
    own = {**({"nic.rails": rails} if rails else {}), **host.expect}
    return profile.expecting(own, f"{host.name} in {host.origin}") if own else profile


def _detected(facts: Facts, profiles: Sequence[Profile]) -> Profile:
    found = facts[smi]
    if isinstance(found, Unknown) or not found.gpus:
        return NO_PROFILE
    return detect(found.gpus[0].name or "", len(found.gpus), list(profiles))


def assess(checks: Sequence[Check], facts: Mapping[str, Facts], profiles: Mapping[str, Profile]) -> list[Verdict]:
    """The verdicts of every node, in order, then those of checks over the nodes of each profile."""
    alone = [v for node, known in facts.items() for v in judge_node(checks, known, profiles[node])]
    return alone + compare(checks, facts, profiles)


def compare(checks: Sequence[Check], facts: Mapping[str, Facts], profiles: Mapping[str, Profile]) -> list[Verdict]:
    """The verdicts of the checks over the nodes of each profile."""
    verdicts: list[Verdict] = []
    for name in dict.fromkeys(profile.name for profile in profiles.values()):
        alike = {node: known for node, known in facts.items() if profiles[node].name == name}
        for check in (c for c in checks if c.scope == "group"):
            verdicts += judge_group(check, alike, profiles[next(iter(alike))])
    return verdicts
