"""Text report of onboarding: which nodes were admitted, where the others stopped, and what the interrupted ones did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpuops.report.page import Page, fold
from gpuops.results.life import NodeOnboarding, Onboarding


def summary(result: Onboarding) -> Iterator[str]:
    """Yield ``stopped: gpu[01-03] at burn-in, gpu07 at pair``, and the same for other nodes, if there are any."""
    admitted = [host for host, node in result.nodes.items() if node.state == "admitted" and result.interrupted]
    ends = {
        "admitted": fold(admitted) if admitted else "",
        "stopped": _grouped(result, lambda node: f"at {node.stopped_at}" if node.stopped_at else ""),
        "interrupted": _grouped(result, _interruption),
    }
    yield from (f"{end}: {nodes}" for end, nodes in ends.items() if nodes)


def below(sentences: Sequence[str], page: Page) -> Iterator[str]:
    """Yield ``sentences`` below the list of gates, each wrapped below its own first word."""
    yield from [""] if sentences else []
    for sentence in sentences:
        label, _, rest = sentence.partition(": ")
        yield from page.labelled(f"{label}: ", rest, len(label) + 2)


def _interruption(node: NodeOnboarding) -> str:
    doing = f" ({node.doing})" if node.doing else ""
    return f"at {node.interrupted_at}{doing}" if node.interrupted_at and not node.stopped_at else ""


def _grouped(result: Onboarding, where: Callable[[Any], str]) -> str:
    """Return the nodes at each place that ``where`` returns, as one sentence; it returns nothing for other nodes."""
    hosts_by_place: dict[str, list[str]] = {}
    for host, node in result.nodes.items():
        if place := where(node):
            hosts_by_place.setdefault(place, []).append(host)
    return ", ".join(f"{fold(hosts)} {place}" for place, hosts in hosts_by_place.items())
