"""The past as text: runs, two of them compared, and the history of nodes, parts and links with sparklines."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import singledispatch
from typing import TypeVar

from gpuops.errors import format_count
from gpuops.proposal import propose
from gpuops.report.page import Page, clean, fold
from gpuops.report.past.wording import format_days, format_parts, format_rename, format_time, format_times, name_kind
from gpuops.results.history import (
    FailureRecord,
    FleetHistory,
    History,
    LinkHistory,
    NodeHistory,
    PartHistory,
    Points,
    RunDetails,
    RunDiff,
    is_counter,
    series,
)
from gpuops.store.records import KeptFinding, KeptPart, KeptRun

K = TypeVar("K")
V = TypeVar("V")
_BARS = "▁▂▃▄▅▆▇█"
_MOST = 15
_FEW = 3
_SPARK_WIDTH = 24
_LEAST_PART_DAYS = 30
"""Part-days before a rate is shown; our own choice. Without a failure in 30, the 95 percent interval still ends at 123
per 1,000, a failure of each part in 8 days: less history does not tell a good model from a bad one."""


def sparkline(values: Sequence[float], width: int = _SPARK_WIDTH) -> str:
    """Return the values as bars from minimum to maximum; of many, the last value of each of ``width`` steps."""
    if len(values) > width:
        values = [values[(k + 1) * len(values) // width - 1] for k in range(width)]
    low, high = min(values), max(values)
    span = high - low
    return "".join(_BARS[int((value - low) / span * (len(_BARS) - 1))] if span else _BARS[0] for value in values)


def run_rows(runs: Sequence[KeptRun], page: Page) -> Iterator[str]:
    """Yield a row for each run of the store."""
    table = [("run", "began", "nodes", "unhealthy", "result", "what")] if runs else []
    for run in runs:
        counts = (str(run.nodes), str(run.unhealthy))
        table.append(
            (str(run.number), format_time(run.began), *counts, run.conclusion, f"{run.verb} {run.level}".strip())
        )
    yield from page.columns(table)


def run_lines(run: RunDetails, page: Page) -> Iterator[str]:
    """Yield one run: its command, the nodes by status, and its findings."""
    summary = run.run
    kind = f"{summary.verb} {summary.level}".strip()
    words = f"run {summary.number}   {kind}   {format_time(summary.began)}   {summary.seconds:.1f} s"
    yield from page.labelled("", f"{words}   {summary.conclusion}   {clean(summary.who)}", 0)
    yield from page.labelled("", clean(summary.command), 0)
    for (status, why), nodes in _folded(((v.status, v.why), node) for node, v in run.visits.items()).items():
        yield from page.labelled(f"{status.upper():<7}{len(nodes):>4}  ", clean(f"{fold(nodes)}  {why}".rstrip()), 13)
    for severity, findings in _folded((finding.severity, finding) for finding in run.findings).items():
        yield from _on_nodes(severity, findings, page)


def diff_lines(diff: RunDiff, page: Page) -> Iterator[str]:
    """Yield two runs compared: findings, changes of status, moved parts."""
    yield from _compared(diff, page)
    for kind, found in (("new", diff.changes.new), ("gone", diff.changes.gone), ("not seen", diff.changes.unseen)):
        yield from _on_nodes(kind, found, page)
    for (before, after), nodes in _folded((pair, node) for node, pair in diff.statuses.items()).items():
        yield from page.labelled(f"{'status':<10}", f"{fold(nodes)}: {before} → {after}", 10)
    for part in diff.moved:
        yield from page.labelled(f"{'part':<10}", clean(f"{part.node} {part.slot}: now {part.model} {part.serial}"), 10)
    for words, alone in (("only in the first", diff.only_before), ("only in the second", diff.only_after)):
        if alone:
            yield from page.labelled(f"{'nodes':<10}", f"{words}: {fold(alone)}", 10)
    same = len(diff.changes.continuing)
    yield f"{format_count(same, 'finding')} in both" if same else "no findings in both"


def _compared(diff: RunDiff, page: Page) -> Iterator[str]:
    """Yield what is compared: the runs, what only one of them looked at, and machines with another name."""
    for word, run in (("from", diff.before), ("to", diff.after)):
        kind = f"{run.verb} {run.level}".strip()
        yield from page.labelled(f"{word:<10}", f"run {run.number} ({kind}, {format_time(run.began)})", 10)
    if diff.swapped:
        yield from page.labelled(f"{'order':<10}", "the earlier run is the first, though it was named second", 10)
    for checks, has, lacks in (
        (diff.checks_before, diff.before.number, diff.after.number),
        (diff.checks_after, diff.after.number, diff.before.number),
    ):
        if checks:
            text = (
                f"run {lacks} did not have {format_count(len(checks), 'check')} of run {has}; they count for no status"
            )
            yield from page.labelled(f"{'partial':<10}", text, 10)
    for node, former in diff.changes.renamed.items():
        yield from page.labelled(f"{'name':<10}", clean(f"{former} is now named {node}"), 10)


@singledispatch
def lines(history: History, page: Page) -> Iterator[str]:
    """Yield a history as text."""
    raise TypeError(history, page)


@lines.register
def fleet_lines(history: FleetHistory, page: Page) -> Iterator[str]:
    """Yield the nodes and parts that failed most often, and the failure rate of each model."""
    if not history.runs:
        yield f"no runs yet; to save one: {propose('validate')}"
        return
    failed = [record for record in history.nodes if record.failures]
    healthy = sum(not record.failures and record.name not in history.never_reached for record in history.nodes)
    unseen = f"; never reached: {fold(history.never_reached)}" if history.never_reached else ""
    counts = f"{format_count(history.runs, 'run')} of {format_count(len(history.nodes), 'node')}"
    yield from page.labelled("", f"{counts}; {healthy} without a failure of their own{unseen}", 0)
    for title, records in (("node", failed), ("part", history.parts)):
        if records:
            yield ""
            yield from page.columns(list(_failure_rows(title, records)))
    if history.models:
        yield ""
        rows = [("model", "failures", "watched", "per 1,000 d (95 %)")]
        yield from page.columns([*rows, *map(_rate_row, history.models)])


def _failure_rows(title: str, records: Sequence[FailureRecord]) -> Iterator[tuple[str, ...]]:
    repeats = any(record.intervals_days for record in records)
    yield (title, "failures", "watched", *(["median gap"] if repeats else []), "latest")
    for record in records[:_MOST]:
        gap = "" if record.median_days is None else format_days(record.median_days)
        counts = (str(record.failures), format_days(record.days), *([gap] if repeats else []))
        yield (clean(record.name), *counts, record.latest)
    if len(records) > _MOST:
        yield (f"{len(records) - _MOST} more", *[""] * (3 if repeats else 2), "--json lists them")


def _rate_row(record: FailureRecord) -> tuple[str, ...]:
    name = clean(name_kind(record.kind, record.name))
    return (name, str(record.failures), format_days(record.days), _rate(record))


def _rate(record: FailureRecord) -> str:
    """Return the rate with its interval; of models without a failure only its upper bound says something."""
    if record.per_1000_days is None or record.days < _LEAST_PART_DAYS:
        return f"known after {_LEAST_PART_DAYS} d"
    rate, low, high = (f"{number:,.0f}" if number >= 10 else f"{number:.1f}" for number in record.per_1000_days)
    return f"{rate} ({low} to {high})" if record.failures else f"at most {high}"


@lines.register
def node_lines(history: NodeHistory, page: Page) -> Iterator[str]:
    """Yield the findings on a node, its parts, and its figures over time."""
    latest = history.visits[-1]
    visits = f"{format_count(len(history.visits), 'run')} since {format_time(history.visits[0].at)}"
    yield f"{history.node}   {latest.visit.status}   {visits}"
    for each in history.renames:
        yield from page.labelled("  name     ", clean(format_rename(each)), 11)
    yield from _findings(history.findings, page)
    yield from _parts(history.parts, page)
    yield from _series(series(history.visits), page)


@lines.register
def part_lines(history: PartHistory, page: Page) -> Iterator[str]:
    """Yield the slots that a part was in, the findings on it, and its figures over time."""
    part = history.slots[-1]
    yield clean(f"{part.kind} {history.serial}   {part.model}")
    for slot in history.slots:
        yield from page.labelled("  in", clean(f"{slot.node} {slot.slot} {_there(slot)}"), 11)
    yield from _findings(history.findings, page)
    yield from _series(history.figures, page)


@lines.register
def link_lines(history: LinkHistory, page: Page) -> Iterator[str]:
    """Yield the bandwidth between two nodes over time, a line for each rail."""
    yield f"{history.a} - {history.b}   {format_count(len(history.measured), 'figure')}"
    for rail, found in _folded((kept.link.rail, kept) for kept in history.measured).items():
        rates = [kept.link.gb_per_s for kept in found]
        expected = found[-1].link.expected_gb_per_s
        of = f" of {expected:.1f}" if expected else ""
        yield from page.labelled(f"  {_rail(rail):<11}", f"{sparkline(rates)}  {rates[-1]:.1f}{of} GB/s", 13)


def _findings(findings: Iterable[KeptFinding], page: Page) -> Iterator[str]:
    for finding in findings:
        text = f"{finding.key.part} {finding.key.check}: {finding.message}; {format_times(finding)}"
        yield from page.labelled(f"  {finding.severity:<9}", clean(text), 11)


def _on_nodes(label: str, findings: Iterable[KeptFinding], page: Page) -> Iterator[str]:
    """Yield findings in a few lines each; those that differ only in their node are one."""
    alike = _folded(((_words(each), () if each.key.node else each.nodes), each.key.node) for each in findings)
    for (text, shared), nodes in alike.items():
        where = fold(filter(None, nodes)) or fold(shared) or "fleet"
        yield from page.labelled(f"{label:<10}", f"{where} {text}", 10)


def _parts(parts: Iterable[KeptPart], page: Page) -> Iterator[str]:
    slots = list(parts)
    first = min((part.first_run for part in slots), default=0)
    steady = [part for part in slots if part.is_there and part.first_run == first]
    if len(steady) > _FEW:
        yield from page.labelled("  parts", clean(f"{format_parts(steady)}; {_there(steady[0])}"), 11)
        slots = [part for part in slots if part not in steady]
    for part in slots:
        text = f"{part.slot}  {part.model}  {part.serial}  {_there(part)}"
        yield from page.labelled(f"  {part.kind:<9}", clean(text), 11)


def _there(part: KeptPart) -> str:
    since = format_time(part.first_at)
    return f"since {since}" if part.is_there else f"{since} to {format_time(part.last_at)}"


def _series(figures: Mapping[str, Points], page: Page) -> Iterator[str]:
    """Yield a sparkline for each figure that changed, and one line for all that did not."""
    changed = {name: [value for _, value in points] for name, points in figures.items()}
    moving = {name: values for name, values in changed.items() if len(set(values)) > 1}
    width = max(map(len, moving), default=0)
    for name, values in moving.items():
        grown = f", +{values[-1] - values[0]:,.0f}" if is_counter(name) else ""
        yield f"  {clean(name):<{width}}  {sparkline(values)}  {min(values):,.4g} to {max(values):,.4g}{grown}"
    if len(moving) < len(changed):
        yield from page.labelled("  ", f"unchanged: {format_count(len(changed) - len(moving), 'figure')}", 2)


def to_csv(history: History) -> str:
    """Return the figures as rows of time, figure and value; of all nodes, the failures of each."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    if isinstance(history, FleetHistory):
        rows.writerow(("kind", "name", "failures", "days_watched", "median_days_between"))
        for kind, records in (("node", history.nodes), ("part", history.parts), ("model", history.models)):
            rows.writerows((kind, _cell(r.name), r.failures, f"{r.days:.3f}", r.median_days) for r in records)
        return text.getvalue()
    rows.writerow(("time", "figure", "value"))
    for name, points in _figures(history).items():
        rows.writerows((f"{at:%Y-%m-%dT%H:%M:%SZ}", _cell(name), value) for at, value in points)
    return text.getvalue()


def _cell(text: str) -> str:
    """Return a text of a node for a cell: a spreadsheet must not take it for a formula (OWASP: CSV injection)."""
    shown = clean(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def _figures(history: NodeHistory | PartHistory | LinkHistory) -> Mapping[str, Points]:
    if isinstance(history, NodeHistory):
        return series(history.visits)
    if isinstance(history, PartHistory):
        return history.figures
    return _folded((_rail(kept.link.rail) + ".gb_per_s", (kept.at, kept.link.gb_per_s)) for kept in history.measured)


def _rail(rail: int | None) -> str:
    return "all rails" if rail is None else f"rail {rail}"


def _words(finding: KeptFinding) -> str:
    return clean(f"{finding.key.part} {finding.key.check}: {finding.message}")


def _folded(items: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    found: dict[K, list[V]] = {}
    for key, value in items:
        found.setdefault(key, []).append(value)
    return found
