"""Text report of host keys: those that a server shows, and those that are recorded for it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.results.trusted import Trusted
from gpuops.transport.host_keys import HostKeys


def lines(keys: HostKeys) -> Iterator[str]:
    """Yield the shown keys, and the recorded ones if they differ; nothing if all are known."""
    if keys.known:
        return
    yield f"{keys.node} ({keys.settings}) shows"
    for key in keys.shown:
        yield f"  {key.type:<22} {key.fingerprint}"
    if keys.changed:
        yield "instead of the recorded keys"
        for old in keys.recorded:
            yield f"  {old.type:<22} {old.fingerprint}  {old.where}"


def outcome(node: str, trusted: Trusted) -> str:
    """Return ``gpu01: recorded in ~/.ssh/known_hosts``."""
    if trusted.state == "not_recorded":
        return f"{node}: {trusted.why}"
    return f"{node}: already known" if trusted.state == "known" else f"{node}: recorded in {trusted.file}"
