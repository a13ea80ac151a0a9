"""Saving of results in the project's store, for later comparison."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any, TypeVar

from gpuops.errors import LockedError, OutputError
from gpuops.results import recorded
from gpuops.results.health import Report
from gpuops.secret import redact
from gpuops.store import Runs
from gpuops.store.records import RunRecord
from gpuops.workspace import Workspace

R = TypeVar("R")
_MIB = 2**20


def keep(work: Workspace, request: object, result: R) -> R:
    """Save ``result`` if its kind is kept, and return it; a report also gets what changed since the runs before.

    Saved answers were judged before, so they are not kept. A store that cannot be written fails no command: it is said.
    """
    record = _record(work, result) if getattr(request, "save_run", False) and work.nodes.source != "saved" else None
    if record is None:
        return result
    try:
        with Runs(work.project.store_path) as runs:
            number, changes = runs.save(record)
            oldest = dt.datetime.now(dt.timezone.utc) - dt.timedelta(days=work.project.keep_days)
            runs.prune(oldest, work.project.keep_mib * _MIB)
    except (OutputError, LockedError) as error:
        work.note(f"this run is not saved: {error}")
        return _compared(work, record, result)
    saved: Any = replace(result, number=number, changes=changes) if isinstance(result, Report) else result
    return saved  # type: ignore[no-any-return]


def _compared(work: Workspace, record: RunRecord, result: R) -> R:
    """Return a report that is not saved with what changed since the runs before, as far as they can be read."""
    if not isinstance(result, Report):
        return result
    try:
        with Runs(work.project.store_path, copied=True) as runs:
            _, changes = runs.save(record)
    except (OutputError, LockedError):  # which was noted
        return result
    compared: Any = replace(result, changes=changes) if changes.since else result
    return compared  # type: ignore[no-any-return]


def _record(work: Workspace, result: Any) -> RunRecord | None:
    began = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=result.seconds)
    command, inventory = redact(work.invocation), redact(work.nodes.name)
    run = RunRecord("", began, result.seconds, result.conclusion(), work.operator, command, inventory)
    return recorded.record(result, run, {host.name: host for host in work.hosts})
