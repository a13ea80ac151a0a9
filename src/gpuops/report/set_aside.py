"""Text of what counts for nothing: findings of checks in shadow, and findings that waivers cover."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuops.judging import Finding, why_unused
from gpuops.report.page import Page, clean, fold
from gpuops.results.health import Report

_SHADOW = "in shadow, counts for nothing"
_Set = tuple[str, Finding]


def lines(report: Report, page: Page) -> Iterator[str]:
    """Yield one line for equal findings, why they do not count and where, and one for each waiver without any."""
    apart: list[_Set] = [(_SHADOW, finding) for finding in report.shadow if finding.status != "pass"]
    apart += [(waiver.note, finding) for finding, waiver in report.waived]
    for (note, check, message), findings in _folded(apart).items():
        yield from page.labelled(f"{clean(note)}: ", clean(f"{check}: {message} on {_where(findings)}"), 2)
    verdicts = [verdict for host in report.hosts for verdict in host.verdicts]
    for waiver in report.unused_waivers:
        if why := why_unused(waiver, verdicts):
            text = f"the waiver for {waiver.check} covers nothing: {why}"
            yield from page.labelled(f"{clean(str(waiver.where))}: ", clean(text), 2)


def _folded(apart: Iterable[_Set]) -> dict[tuple[str, str, str], list[Finding]]:
    folded: dict[tuple[str, str, str], list[Finding]] = {}
    for note, finding in apart:
        folded.setdefault((note, finding.check, finding.message), []).append(finding)
    return folded


def _where(findings: Iterable[Finding]) -> str:
    """Return ``gpu[01-04] gpu3``: the nodes, and the parts unless it is the node itself."""
    findings = list(findings)
    nodes = list(dict.fromkeys(n for f in findings for n in ((f.host,) if f.host else f.hosts)))
    parts = [part for part in dict.fromkeys(str(f.part) for f in findings) if part != "node"]
    return " ".join(filter(None, (fold(nodes) if nodes else "all nodes", fold(parts) if parts else "")))
