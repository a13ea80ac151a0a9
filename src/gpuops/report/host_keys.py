"""Host keys for a person: what a server shows, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.transport.host_keys import HostKeys


def lines(keys: HostKeys) -> Iterator[str]:
    """The shown keys, and the recorded ones if they are others."""
    yield f"{keys.node} ({keys.settings}) shows"
    for key in keys.shown:
        yield f"  {key.type:<22} {key.fingerprint}"
    if keys.changed:
        yield "instead of what is recorded"
        for old in keys.recorded:
            yield f"  {old.type:<22} {old.fingerprint}  {old.where}"
