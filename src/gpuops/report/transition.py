"""A transition for a person: what hosts are now, and what kept others from it."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.results.life import Transition


def lines(result: Transition) -> Iterator[str]:
    """``gpu01   admitted   by hand``."""
    for host, event in result.events.items():
        yield f"{host}   {event.state}   {event.why}"


def complaints(result: Transition) -> Iterator[str]:
    """What is in the way of each other host, and what to do about it."""
    for host, excluded in result.excluded.items():
        yield f"{host}: {excluded.why}"
    for host, objection in result.objections.items():
        yield f"{host}: {'; '.join(filter(None, (objection.why, objection.do)))}"
    for host, why in result.busy.items():
        if host not in result.objections:
            yield f"{host}: {why}"
