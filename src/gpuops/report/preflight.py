"""Text report of a diagnosis: the verdict of each step, then every cause with the line to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.collective.preflight.diagnosis import Diagnosis, PreflightStep
from gpuops.proposal import propose
from gpuops.report.page import Page, clean, fold

_NAMES = {"meeting": "rendezvous"}
"""The names of tests whose key in JSON is an older word."""
_IN_THE_COMMAND = frozenset({"hosts", "interface", "meeting", "gid"})
"""The tests whose fix is a part of the command line, for all nodes at once."""
_WORDS = {"ok": "ok", "fail": "FAIL", "skipped": "skipped"}


def lines(diagnosis: Diagnosis, page: Page) -> Iterator[str]:
    """Yield the steps, then the causes in the order in which to fix them."""
    title = f"preflight   {diagnosis.command.launcher} on {fold(diagnosis.hosts)}"
    yield from page.edges(title, f"{diagnosis.seconds:.1f} s")
    yield ""
    for step in diagnosis.steps:
        yield from page.labelled(f"  {_NAMES.get(step.name, step.name):<12} {_WORDS[step.state]}", _detail(step), 24)
    for cause in diagnosis.causes:
        yield ""
        yield from page.edges(_who(cause.nodes), _NAMES.get(cause.test, cause.test))
        yield from page.labelled("  why", clean(cause.why), 10)
        yield from page.labelled("  change", clean(cause.fix), 10)
    yield ""
    for checks, nodes in _also_failing(diagnosis).items():
        yield from page.labelled("also failing", clean(f"{fold(nodes)}: {', '.join(checks)}"), 19)
    if diagnosis.also_failing:
        see = propose("validate", "--limit", fold(diagnosis.also_failing))
        yield from page.labelled("", f"this does not prevent the start; to see it: {see}", 19)
    first = diagnosis.causes[0] if diagnosis.causes else None
    if first is None:
        yield "no problems found"
    else:
        where = f"{fold(first.nodes)}: " if first.nodes and first.test not in _IN_THE_COMMAND else ""
        yield from page.labelled("change this first", clean(f"{where}{first.fix}"), 19)


def _who(nodes: Sequence[str]) -> str:
    return fold(nodes) if nodes else "the command"


def _detail(step: PreflightStep) -> str:
    """Return the details of a step, with every node that fails it."""
    more = f"; other causes on {fold(step.more)}" if step.more else ""
    return clean(f"{fold(step.nodes)}: {step.detail}{more}" if step.nodes else f"{step.detail}{more}")


def _also_failing(diagnosis: Diagnosis) -> dict[tuple[str, ...], list[str]]:
    """Return the nodes by the checks that fail on them without preventing the start."""
    nodes: dict[tuple[str, ...], list[str]] = {}
    for node, checks in diagnosis.also_failing.items():
        nodes.setdefault(checks, []).append(node)
    return nodes
