"""Text report of the verdicts of one check: a line for each node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuops.judging import Verdict
from gpuops.report.page import clean


def lines(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield ``gpu01   clock: pass`` for each node."""
    for verdict in verdicts:
        why = "; ".join(finding.message for finding in verdict.findings) or verdict.why
        yield clean(f"{verdict.node}   {verdict.check}: {verdict.status}{f'   {why}' if why else ''}")
