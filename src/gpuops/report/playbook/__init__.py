"""Text report of a playbook run: one block for nodes with the same results; unchanged nodes are only listed."""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from gpuops.errors import format_count
from gpuops.playbook.record import Record
from gpuops.playbook.result import StepResult
from gpuops.playbook.task import Change
from gpuops.report.page import Page, clean, fold, format_node_count

_COLUMN = 18
_QUIET = ("ok", "skipped")
_COUNTED = (
    "would_change",
    "changed",
    "later",
    "ok",
    "skipped",
    "failed",
    "unreachable",
    "needs_operator",
    "interrupted",
)
_ALWAYS_COUNTED = ("ok", "failed")


def record_lines(record: Record, page: Page, *, diff: bool, typed: Sequence[str] = ()) -> Iterator[str]:
    """Yield the results of every node; nothing if the run was locked out.

    How to continue follows if ``typed`` has the words of the command line.
    """
    if record.locked:
        return
    mode = "check mode: nothing is changed" if record.check else f"run {record.run_id}"
    yield from page.labelled("", f"{record.playbook}   {mode}", 0)
    yield from draw(record, page, diff=diff)
    yield from ("", *page.labelled("", summary(record), 0))
    if not record.check:
        yield from ending(record, page)
        if typed and record.conclusion() != "ok":
            again = typed if "--resume" in typed else (*typed, "--resume", record.run_id)
            yield from page.labelled("", f"to go on: {shlex.join(again)}", 0)
    elif typed and any(result.status in ("would_change", "later") for result in record.results):
        again = [word for word in typed if word not in ("-C", "--check")]
        yield from page.labelled("", f"to apply: {shlex.join(again)}", 0)


def draw(record: Record, page: Page, *, diff: bool) -> Iterator[str]:
    """Yield the blocks of nodes with something to report, then one line of nodes whose steps were all ok."""
    by_node: dict[str, list[StepResult]] = {}
    for result in record.results:
        by_node.setdefault(result.node, []).append(result)
    blocks: dict[tuple[str, ...], list[str]] = {}
    for node, results in by_node.items():
        blocks.setdefault(tuple(_node_lines(results, page, diff=diff)), []).append(node)
    for block, nodes in blocks.items():
        if block:
            yield from ("", fold(nodes), *block)
    quiet = [node for block, nodes in blocks.items() if not block for node in nodes]
    if quiet:
        yield from ("", *page.labelled(f"  {'ok':<{_COLUMN - 2}}", fold(quiet), _COLUMN))


def summary(record: Record) -> str:
    """Return ``3 nodes, 8 steps: 2 changed, 5 ok, 1 failed``: the steps of all nodes, by status."""
    counts = Counter("ignored" if result.ignored else result.status for result in record.results)
    nodes = format_node_count(len({result.node for result in record.results}))
    counted = [f"{counts[s]} {_status_words(s)}" for s in (*_COUNTED, "ignored") if counts[s] or s in _ALWAYS_COUNTED]
    return f"{nodes}, {format_count(len(record.results), 'step')}: {', '.join(counted)}"


def ending(record: Record, page: Page) -> Iterator[str]:
    """Yield why the run stopped, the nodes that it did not start, and the handlers that are still pending."""
    if record.stopped:
        yield from page.labelled("stopped: ", clean(record.stopped), len("stopped: "))
    if record.untouched:
        yield from page.labelled("not started: ", fold(record.untouched), len("not started: "))
    waiting: dict[str, list[str]] = {}
    for node, names in record.waiting.items():
        waiting.setdefault(", ".join(names), []).append(node)
    waiting.pop("", None)
    for handlers, nodes in waiting.items():
        text = f"handlers pending on {fold(nodes)} until this playbook runs again: {clean(handlers)}"
        yield from page.labelled("", text, 0)


def _status_words(status: str) -> str:
    return status.replace("_", " ")


def _node_lines(results: list[StepResult], page: Page, *, diff: bool) -> Iterator[str]:
    """Yield the results of one node; nothing if every step was ok or skipped."""
    loud = [result for result in results if result.status not in _QUIET]
    for result in loud:
        status = "ignored" if result.ignored else _status_words(result.status)
        yield from page.labelled(f"  {status:<{_COLUMN - 2}}", clean(result.name), _COLUMN)
        yield from _result_lines(result, page, diff=diff)
    for status in _QUIET if loud else ():
        names = [clean(result.name) for result in results if result.status == status]
        if names:
            yield from page.labelled(f"  {status:<{_COLUMN - 2}}", ", ".join(names), _COLUMN)


def _result_lines(result: StepResult, page: Page, *, diff: bool) -> Iterator[str]:
    for change in result.changes:
        yield from page.labelled("", clean(change.what), _COLUMN + 2)
        if diff:
            yield from (f"{'':<{_COLUMN + 4}}{line}" for line in _difference(change))
    for sentence in filter(None, (result.why, *(f"later: {why}" for why in result.later))):
        yield from page.labelled("", clean(sentence), _COLUMN + 2)


def _difference(change: Change) -> Iterator[str]:
    """Return the lines that differ, with three lines of context."""
    before, after = str(change.before).splitlines(), str(change.after).splitlines()
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    return (clean(line) for line in lines)
