"""Which nodes fail a quick check, so that they hold no rank and are put under no load."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuops.facts import Facts
    from gpuops.inventory import Host
    from gpuops.judging import Check
    from gpuops.probing import Probe
    from gpuops.profile import Profile
    from gpuops.reasons import Excluded


def quick_checks() -> list[Check]:
    """The checks of the quick level."""
    from gpuops import judging

    return judging.choose(judging.discover(), "quick")


def quick_probes(*more: Probe[Any]) -> list[Probe[Any]]:
    """What the quick checks need, and ``more``."""
    from gpuops import assessment

    return list(dict.fromkeys([*assessment.probes_for(quick_checks()), *more]))


def profiles_of(hosts: Iterable[Host], facts_by_node: Mapping[str, Facts]) -> dict[str, Profile]:
    """The profile of each host of which there are facts."""
    return expected_of([host for host in hosts if host.name in facts_by_node], facts_by_node)


def expected_of(hosts: Iterable[Host], facts_by_node: Mapping[str, Facts]) -> dict[str, Profile]:
    """The profile of each host: as the inventory names it, else by its GPUs, if there are facts of them."""
    from gpuops import assessment, profile
    from gpuops.facts import Facts

    profiles, nothing = profile.known(), Facts("", dt.datetime.now(dt.timezone.utc), {})
    return {host.name: assessment.profile_of(host, facts_by_node.get(host.name, nothing), profiles) for host in hosts}


def unhealthy(facts_by_node: Mapping[str, Facts], profiles: Mapping[str, Profile]) -> dict[str, Excluded]:
    """The nodes that fail a quick check, each with the checks that it fails."""
    checks = quick_checks()
    return failing(
        checks, {node: looked_at(checks, facts_by_node[node], profile) for node, profile in profiles.items()}
    )


@dataclass(frozen=True)
class Health:
    """What checks say of one node alone, and the ``facts`` by which it is compared with others of its profile."""

    profile: Profile
    fails: tuple[str, ...]
    facts: Facts


def looked_at(checks: Sequence[Check], facts: Facts, profile: Profile) -> Health:
    """The health of one node, small enough to be handed between processes."""
    from gpuops.judging import judge_node, probes_of

    fails = tuple(verdict.check for verdict in judge_node(checks, facts, profile) if verdict.status == "fail")
    return Health(profile, fails, facts.only(probes_of(check for check in checks if check.scope == "group")))


def failing(checks: Sequence[Check], health: Mapping[str, Health]) -> dict[str, Excluded]:
    """The nodes that fail one of ``checks``, each with those that it fails, by itself or beside the others."""
    from gpuops import assessment
    from gpuops.reasons import Excluded

    failed = {node: list(seen.fails) for node, seen in health.items()}
    profiles = {node: seen.profile for node, seen in health.items()}
    for verdict in assessment.compare(checks, {node: seen.facts for node, seen in health.items()}, profiles):
        if verdict.status == "fail" and verdict.node:
            failed[verdict.node].append(verdict.check)
    return {
        node: Excluded(node, "unhealthy", f"fails {', '.join(names)}", checks=tuple(names))
        for node, names in failed.items()
        if names
    }
