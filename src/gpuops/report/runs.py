"""Runs of playbooks for a person and as documents: a row for each, and the changes of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpuops.playbook.journal import Line, RunSummary
from gpuops.report.page import Page, clean

_ENDS = {0: "ok", 1: "failed", 3: "incomplete", 4: "locked", 130: "interrupted"}


def rows(runs: Sequence[RunSummary], page: Page) -> Iterator[str]:
    """Yield a table with a row for each run."""
    table = [("run", "result", "changes", "who", "playbook")] if runs else []
    table += [(run.run, _result(run), str(run.changes), clean(run.who), clean(run.playbook)) for run in runs]
    yield from page.columns(table)


def _result(run: RunSummary) -> str:
    return "not ended" if run.exit is None else _ENDS.get(run.exit, str(run.exit))


def document(run: RunSummary) -> dict[str, Any]:
    """Return a run as plain data; ``exit`` is null if it did not come to its end."""
    return {
        "run": run.run,
        "playbook": run.playbook,
        "who": run.who,
        "started": run.started,
        "exit": run.exit,
        "changes": run.changes,
        "failed": list(run.failed),
    }


def changes(lines: Iterable[Line]) -> Iterator[str]:
    """Yield a line for each change that a run made, and one for its end."""
    entries = list(lines)
    ended = {line["id"]: "ok" if line["good"] else "failed" for line in entries if line["event"] == "done"}
    for line in entries:
        if line["event"] in ("run", "resume"):
            yield f"{line['at']}   {line['event']}   {clean(line['playbook'])}   {clean(line['who'])}"
        elif line["event"] == "change":
            yield f"{line['at']}   {clean(line['node'])}   {ended.get(line['id'], 'unknown')}   {clean(line['what'])}"
        elif line["event"] == "end":
            yield f"{line['at']}   end   {_ENDS.get(line['exit'], line['exit'])}   {clean(line['stopped'])}".rstrip()
