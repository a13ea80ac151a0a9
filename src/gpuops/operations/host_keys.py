"""Host keys: reading those that hosts show, and recording trusted ones."""

from __future__ import annotations

from collections.abc import Callable

from gpuops.errors import HostKeyError
from gpuops.inventory import Host
from gpuops.reasons import excluded_by
from gpuops.requests import HostKeysRequest, TrustRequest
from gpuops.results.answers import Answers
from gpuops.transport.host_keys import HostKeys, fetch_host_keys
from gpuops.workspace import Workspace


def look(work: Workspace, request: HostKeysRequest) -> Answers[HostKeys]:  # noqa: ARG001 - it has no fields
    """Fetch the keys that hosts show, without logging in."""
    return _fetched(work, lambda keys: keys)


def trust(work: Workspace, request: TrustRequest) -> Answers[HostKeys]:
    """Fetch the keys that hosts show and record them; a host whose keys are refused is excluded."""

    def record(keys: HostKeys) -> HostKeys:
        refusal = refusal_of(keys, request.fingerprint, replace=request.replace)
        if refusal:
            raise HostKeyError(keys.node, refusal)
        if not keys.known:
            keys.accept(replace=request.replace)
        return keys

    return _fetched(work, record)


def refusal_of(keys: HostKeys, fingerprint: str | None, *, replace: bool) -> str:
    """Return the reason not to record the shown keys; empty if they may be recorded."""
    if keys.revoked:
        return "it shows a revoked key; nothing is recorded"
    if fingerprint and fingerprint not in [key.fingerprint for key in keys.shown]:
        return f"none of its keys has the fingerprint {fingerprint}; nothing is recorded"
    if keys.changed and not replace:
        return "its host key changed; if the node was reinstalled, add --replace"
    return ""


def _fetched(work: Workspace, settle: Callable[[HostKeys], HostKeys]) -> Answers[HostKeys]:
    with work.nodes.connections.group(work.nodes.cancel) as group:

        def visit(host: Host) -> HostKeys:
            return settle(fetch_host_keys(host, group))

        outcomes = work.nodes.each_host(visit, "fetching host keys", stop=group.close)
    excluded = {each.node: excluded_by(each.node, each.error) for each in outcomes if each.error is not None}
    values = {each.node: each.value for each in outcomes if each.value is not None}
    return Answers(values, excluded, {each.node: each.seconds for each in outcomes}, outcomes.interrupted)
