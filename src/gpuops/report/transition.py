"""Text report of a transition: the new states of hosts, and what prevented the others."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.results.life import Transition


def lines(result: Transition) -> Iterator[str]:
    """Yield ``gpu01   admitted   by hand`` for each host."""
    for host, event in result.events.items():
        yield f"{host}   {event.state}   {event.why}"


def complaints(result: Transition) -> Iterator[str]:
    """Yield what prevents the transition of each other host, and what to do about it."""
    for host, excluded in result.excluded.items():
        yield f"{host}: {excluded.why}"
    for host, objection in result.objections.items():
        yield f"{host}: {'; '.join(filter(None, (objection.why, objection.do)))}"
    for host, why in result.busy.items():
        if host not in result.objections:
            yield f"{host}: {why}"
