"""Learning a profile from the nodes that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuops.errors import InputError, format_count
from gpuops.learning import PROBES, kind_of, learn
from gpuops.probing import Unknown
from gpuops.proposal import propose
from gpuops.reasons import Excluded
from gpuops.requests import LearnProfileRequest
from gpuops.results.learned import LearnedProfile
from gpuops.workspace import Workspace

_MOST_NAMES = 8


def learn_profile(work: Workspace, request: LearnProfileRequest) -> LearnedProfile:
    """Return the profile of the hosts, which must be of one kind; hosts that show no GPU are excluded."""
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
    return LearnedProfile(learned, {**gathered.excluded, **excluded}, gathered.interrupted)


def _only_kind(nodes_by_kind: Mapping[str, Sequence[str]], excluded: Mapping[str, Excluded]) -> str:
    if not nodes_by_kind:
        first = next(iter(excluded.values()), None)
        raise InputError(f"no node shows a GPU to learn from{f' ({first.host}: {first.why})' if first else ''}")
    if len(nodes_by_kind) > 1:
        kinds = "; ".join(f"{kind}: {_some(nodes)}" for kind, nodes in nodes_by_kind.items())
        command = propose("profiles", "learn", ",".join(max(nodes_by_kind.values(), key=len)[:_MOST_NAMES]))
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
