"""Text report of an isolation on a fabric that a program measures."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.isolation import fix_for, fix_in_common, max_rounds
from gpuops.report.page import Page, clean, fold, format_node_count
from gpuops.results.isolation import Isolation

_WIDTH = 12
_MAX_LISTED = 8


def lines(isolation: Isolation, page: Page) -> Iterator[str]:
    """Yield the fabric, what is common to the fleet, the blamed parts, and what could not be judged."""
    for label, text in _rows(isolation):
        yield from page.labelled(label, clean(text), _WIDTH)


def _rows(isolation: Isolation) -> Iterator[tuple[str, str]]:
    fabric, blame = isolation.evidence.fabric, isolation.blame
    yield "fabric", f"{format_node_count(len(fabric.nodes))}, units {len(fabric.units)}, leaves {len(fabric.ports_of)}"
    for cause in blame.fleet:
        yield "FLEET", "; ".join((f"{cause} ({fold(cause.nodes)})", *cause.evidence))
        yield "  do", fix_in_common(cause)
    for blamed in blame.blamed:
        parts = " or ".join((blamed.part, *blamed.alternatives))
        yield "BLAMED", f"{parts}: {blamed.kind}. {'; '.join(filter(None, (*blamed.evidence, blamed.doubt)))}"
        yield "  do", fix_for(blamed)
    yield from (("unclear", text) for text in blame.unclear)
    if blame.suspects:
        yield "suspects", f"{_listed(blame.suspects)}: not confirmed"
    if blame.contention:
        yield "contention", f"{_listed(blame.contention)}: slow once but not again; no part is blamed"
    if isolation.interrupted:
        yield "interrupted", "before all rounds had run; this result is incomplete"
    elif not (blame.is_failed or blame.is_incomplete):
        yield "result", "no part is blamed"
    yield "rounds", f"{len(isolation.evidence.rounds)}, at most {max_rounds(fabric)} for this many nodes"


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{', '.join(names[:_MAX_LISTED])}{more}"
