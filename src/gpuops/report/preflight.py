"""Text report of a diagnosis: the verdict of each step, then every cause with the line to change."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.collective.preflight.diagnosis import Diagnosis
from gpuops.report.page import Page, clean, fold

_NAMES = {"meeting": "rendezvous"}
"""The names of tests whose key in JSON is an older word."""
_WORDS = {"ok": "ok", "fail": "FAIL", "skipped": "skipped"}


def lines(diagnosis: Diagnosis, page: Page) -> Iterator[str]:
    """Yield the steps, then the causes in the order in which to fix them."""
    title = f"preflight   {diagnosis.command.launcher} on {fold(diagnosis.hosts)}"
    yield from page.edges(title, f"{diagnosis.seconds:.1f} s")
    yield ""
    for step in diagnosis.steps:
        yield from page.labelled(
            f"  {_NAMES.get(step.name, step.name):<12} {_WORDS[step.state]}", clean(step.detail), 24
        )
    for cause in diagnosis.causes:
        yield ""
        yield from page.edges(
            f"{fold(cause.nodes) if cause.nodes else 'the command'}", _NAMES.get(cause.test, cause.test)
        )
        yield from page.labelled("  why", clean(cause.why), 10)
        yield from page.labelled("  change", clean(cause.fix), 10)
    yield ""
    first = clean(diagnosis.causes[0].fix) if diagnosis.causes else ""
    yield from page.labelled("change this first", first, 19) if first else ("no problems found",)
