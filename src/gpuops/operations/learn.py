"""Learning a profile from the nodes that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuops.bandwidth import GIB, min_payload_bytes, within_node
from gpuops.errors import InputError, format_count
from gpuops.facts import Facts
from gpuops.inventory.names import node_set
from gpuops.judging import Check
from gpuops.learning import PROBES, Learned, kind_of, learn, suggested_name
from gpuops.operations.past.baselines import WITHIN, measured_here
from gpuops.probes.nvidia.nvidia_smi import smi
from gpuops.probing import Unknown
from gpuops.profile import FOLDER, NO_PROFILE, Expected, Profile
from gpuops.proposal import propose
from gpuops.reasons import Excluded
from gpuops.requests import LearnProfileRequest
from gpuops.results.health import Unmatched
from gpuops.results.learned import LearnedProfile
from gpuops.trends.baselines import Baseline
from gpuops.workspace import Workspace

_MOST_NAMES = 8


def learn_profile(work: Workspace, request: LearnProfileRequest) -> LearnedProfile:
    """Return the profile of the hosts, which must be of one kind; hosts that show no GPU are excluded.

    What their all-reduces reached is taken from the store.
    """
    work = work.of_saved(request.facts)
    gathered = work.nodes.gather(PROBES, "gathering facts", facts=request.facts)
    kinds = {node: kind_of(facts) for node, facts in gathered.values.items()}
    excluded = {n: Excluded(n, "unknown", kind.why) for n, kind in kinds.items() if isinstance(kind, Unknown)}
    nodes_by_kind: dict[str, list[str]] = {}
    for node, kind in kinds.items():
        if isinstance(kind, str):
            nodes_by_kind.setdefault(kind, []).append(node)
    kind = _only_kind(nodes_by_kind, {**gathered.excluded, **excluded})
    own = {node: gathered.values[node] for node in nodes_by_kind[kind]}
    learned = learn(request.profile_name, kind, own, list(work.catalogue.profiles().values()))
    reached = measured_here(work, own).get(WITHIN)
    if reached:
        learned = _with_bandwidth(work, learned, reached)
    return LearnedProfile(learned, {**gathered.excluded, **excluded}, gathered.interrupted)


def _with_bandwidth(work: Workspace, learned: Learned, reached: Baseline) -> Learned:
    """Return ``learned`` with the least all-reduce bandwidth of a healthy node.

    Nodes that are slower than published machines of their type teach nothing: their shared fault would become the rule.
    """
    profile, gpus = learned.profile, learned.profile.get("gpu.count", 0)
    published = within_node(profile, gpus)
    algorithm = published.algorithm if published else None if profile.get("nvswitch") else "ring"
    if algorithm is None or gpus < 2:
        return learned
    key = f"allreduce.{algorithm}.{gpus}"
    if published and published.may_fail and reached.gb_per_s < published.floor_gb_per_s:
        work.note(
            f"{key} is not learned: these nodes reached {reached.gb_per_s:.0f} GB/s (median), and healthy machines of "
            f"this type reach {published.floor_gb_per_s:.0f}"
        )
        return learned
    source = (
        f"least of a healthy node, from a median of {reached.gb_per_s:.1f} GB/s of {reached.count} nodes with a spread "
        f"of {reached.spread_gb_per_s:.1f}, measured {reached.oldest:%Y-%m-%d} to {reached.newest:%Y-%m-%d}"
    )
    floor = {min_payload_bytes(gpus) // GIB: round(reached.floor_gb_per_s, 1)}
    values = {**profile.values, key: Expected(floor, source, "measured-here")}
    return replace(learned, profile=replace(profile, values=values))


def unmatched(
    checks: Sequence[Check], facts: Mapping[str, Facts], profiles: Mapping[str, Profile]
) -> tuple[Unmatched, ...]:
    """Return the nodes without a profile by kind of machine, each kind with the command that learns one."""
    nodes_by_kind: dict[tuple[int, str], list[str]] = {}
    for node, own in facts.items():
        if profiles[node].name == NO_PROFILE.name:
            nodes_by_kind.setdefault(_machine(own), []).append(node)
    names = [name for _, name in nodes_by_kind]
    return tuple(
        Unmatched(
            f"{count} {kind}" if kind else "GPUs unknown",
            tuple(nodes),
            tuple(check.name for check in checks if any(_lacks(check, profiles[node]) for node in nodes)),
            _learn_command(nodes, kind, f"-{count}x" * (names.count(kind) > 1)) if kind and " and " not in kind else "",
        )
        for (count, kind), nodes in nodes_by_kind.items()
    )


def _machine(facts: Facts) -> tuple[int, str]:
    """Return the number and the kind of the GPUs; 0 and nothing if unknown."""
    kind, listing = kind_of(facts), facts[smi]
    return (0, "") if isinstance(kind, Unknown) or isinstance(listing, Unknown) else (len(listing.gpus), kind)


def _lacks(check: Check, profile: Profile) -> bool:
    return any(key not in profile.values for key in check.expects)


def _learn_command(nodes: Sequence[str], kind: str, suffix: str = "") -> str:
    pattern = node_set(nodes)
    return propose("profiles", "learn", pattern, "-o", f"{FOLDER}/{suggested_name(kind)}{suffix}.yml")


def _only_kind(nodes_by_kind: Mapping[str, Sequence[str]], excluded: Mapping[str, Excluded]) -> str:
    if not nodes_by_kind:
        first = next(iter(excluded.values()), None)
        raise InputError(f"no node shows a GPU to learn from{f' ({first.host}: {first.why})' if first else ''}")
    if len(nodes_by_kind) > 1:
        kinds = "; ".join(f"{kind}: {_some(nodes)}" for kind, nodes in nodes_by_kind.items())
        kind, nodes = max(nodes_by_kind.items(), key=lambda each: len(each[1]))
        command = _learn_command(nodes, kind)
        raise InputError(
            f"the nodes are of {len(nodes_by_kind)} kinds ({kinds}); name nodes of one kind, such as: {command}"
        )
    (kind,) = nodes_by_kind
    if " and " in kind:
        raise InputError(f"the GPUs of each node are of several kinds ({kind}); a profile describes one")
    return kind


def _some(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:_MOST_NAMES])
    return shown if len(nodes) <= _MOST_NAMES else f"{shown} and {format_count(len(nodes) - _MOST_NAMES, 'more node')}"
