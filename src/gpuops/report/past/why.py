"""One screen about a node: what it is, what is wrong and since when, what was tried, and what to do next."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator

from gpuops.errors import format_count
from gpuops.proposal import propose
from gpuops.reasons import SEVERITIES
from gpuops.report.page import Page, clean
from gpuops.report.past.wording import format_parts, format_rename, format_time, format_times
from gpuops.results.history import Explanation
from gpuops.store.records import KeptFinding

_LABEL = 10
_MOST = 6
_TRIED = 3
_NEXT = {"drained": "admit", "validated": "admit"} | dict.fromkeys(("new", "provisioned", "burned_in"), "onboard")
"""How a healthy node in each state comes to take jobs."""


def lines(why: Explanation, page: Page) -> Iterator[str]:
    """Yield the screen, about twenty lines."""
    for label, text in _rows(why):
        yield from page.labelled(f"{label:<{_LABEL}}", clean(text), _LABEL)


def _rows(why: Explanation) -> Iterator[tuple[str, str]]:
    parts = format_parts(part for part in why.parts if part.is_there)
    yield why.node, parts or "no part with a serial number is known"
    for each in why.renames:
        yield "name", format_rename(each)
    if why.event:
        since = f"since {format_time(why.event.at)}, by {why.event.who}: {why.event.why}"
        yield "state", f"{why.event.state} {since}"
    if why.latest:
        latest = why.latest
        saw = f"; {latest.visit.why}" if latest.visit.why else ""
        yield "last run", f"{latest.run} ({latest.verb}, {format_time(latest.at)}): {latest.visit.status}{saw}"
    standing = sorted(why.standing, key=_rank)
    yield from (("finding", _finding(finding)) for finding in standing[:_MOST])
    if len(standing) > _MOST:
        yield "", f"{len(standing) - _MOST} more findings: --json lists them"
    if not standing:
        yield "finding", "none"
    earlier = Counter(f"{finding.key.part} {finding.key.check}" for finding in why.gone)
    if earlier:
        yield "earlier", ", ".join(f"{what} ({format_count(n, 'time')})" for what, n in earlier.most_common(_MOST))
    for part, failures in why.part_failures:
        yield "part", f"{part.slot} {part.serial}: {format_count(failures, 'failure')} on record"
    yield from (("tried", f"{format_time(at)} {text}") for at, text in _tried(why))
    for finding in standing[:1]:
        yield "do next", finding.fix
    if not standing:
        verb = _NEXT.get(why.event.state, "") if why.event else ""
        yield "do next", propose(verb, why.node) if verb else "nothing"


def _tried(why: Explanation) -> list[tuple[dt.datetime, str]]:
    """Return the latest changes of state and the latest fixes, the oldest first."""
    events = [(event.at, f"{event.who}: {event.state}, {event.why}") for event in why.tried[-_TRIED:]]
    for fix in why.fixes[-_TRIED:]:
        result = f"{fix.status}, {fix.why}" if fix.why else fix.status
        events.append((fix.at, f"{fix.who}: fix {fix.check}, then {result} (run {fix.run})"))
    return sorted(events)


def _rank(finding: KeptFinding) -> tuple[int, dt.datetime]:
    severity = SEVERITIES.index(finding.severity) if finding.severity in SEVERITIES else 0
    return -severity, finding.first_at


def _finding(finding: KeptFinding) -> str:
    what = f"{finding.severity}: {finding.key.part} {finding.key.check}: {finding.message}"
    return f"{what}; {format_times(finding)}"
