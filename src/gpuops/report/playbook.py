"""How a run of a playbook is told: one block for nodes with the same story, nodes where all was well only counted."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator

from gpuops.playbook.result import StepResult
from gpuops.playbook.running import RunState
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


def draw(record: RunState, page: Page, *, diff: bool) -> Iterator[str]:
    """The blocks of the nodes that have something to tell, then those where all was well, in one line."""
    by_node: dict[str, list[StepResult]] = {}
    for result in record.results:
        by_node.setdefault(result.node, []).append(result)
    stories: dict[tuple[str, ...], list[str]] = {}
    for node, results in by_node.items():
        stories.setdefault(tuple(_story(results, page, diff=diff)), []).append(node)
    for story, nodes in stories.items():
        if story:
            yield from ("", fold(nodes), *story)
    quiet = [node for story, nodes in stories.items() if not story for node in nodes]
    if quiet:
        yield from ("", *page.labelled(f"  {'ok':<{_COLUMN - 2}}", fold(quiet), _COLUMN))


def summary(record: RunState) -> str:
    """``3 nodes: 2 changed, 5 ok, 1 failed``: how many steps ended in what way."""
    counts = Counter("ignored" if result.ignored else result.status for result in record.results)
    nodes = format_node_count(len({result.node for result in record.results}))
    told = [f"{counts[s]} {_spoken(s)}" for s in (*_COUNTED, "ignored") if counts[s] or s in _ALWAYS_COUNTED]
    return f"{nodes}: {', '.join(told)}"


def ending(record: RunState, untouched: list[str], page: Page) -> Iterator[str]:
    """Why it stopped, who was not begun, and who still waits for what."""
    if record.stopped:
        yield from page.labelled("stopped: ", clean(record.stopped), len("stopped: "))
    if untouched:
        yield from page.labelled("not begun: ", fold(untouched), len("not begun: "))
    waiting: dict[str, list[str]] = {}
    for node, names in record.waiting.items():
        waiting.setdefault(", ".join(names), []).append(node)
    waiting.pop("", None)
    for handlers, nodes in waiting.items():
        verb = "wait" if len(nodes) > 1 else "waits"
        told = f"{fold(nodes)} still {verb} for: {clean(handlers)}; the next run of this playbook does it"
        yield from page.labelled("", told, 0)


def _spoken(status: str) -> str:
    return status.replace("_", " ")


def _story(results: list[StepResult], page: Page, *, diff: bool) -> Iterator[str]:
    """What one node has to tell; nothing where every step was ok or skipped."""
    loud = [result for result in results if result.status not in _QUIET]
    for result in loud:
        status = "ignored" if result.ignored else _spoken(result.status)
        yield from page.labelled(f"  {status:<{_COLUMN - 2}}", clean(result.name), _COLUMN)
        yield from _told(result, page, diff=diff)
    for status in _QUIET if loud else ():
        names = [clean(result.name) for result in results if result.status == status]
        if names:
            yield from page.labelled(f"  {status:<{_COLUMN - 2}}", ", ".join(names), _COLUMN)


def _told(result: StepResult, page: Page, *, diff: bool) -> Iterator[str]:
    for change in result.changes:
        yield from page.labelled("", clean(change.what), _COLUMN + 2)
        if diff:
            yield from (f"{'':<{_COLUMN + 4}}{line}" for line in _difference(change))
    for sentence in filter(None, (result.why, *(f"later: {why}" for why in result.later))):
        yield from page.labelled("", clean(sentence), _COLUMN + 2)


def _difference(change: Change) -> Iterator[str]:
    """The lines that differ, with three around them."""
    before, after = str(change.before).splitlines(), str(change.after).splitlines()
    lines = list(difflib.unified_diff(before, after, lineterm="", n=3))[2:]
    return (clean(line) for line in lines)
