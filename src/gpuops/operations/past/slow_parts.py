"""The links of nodes that a measurement found slow, with what they reached, from the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuops.errors import LockedError, OutputError
from gpuops.operations.past.recall import accusations
from gpuops.planner.price import SlowPart
from gpuops.results.recorded import ALL_RAILS, blamed_figures
from gpuops.store import Runs
from gpuops.store.records import KeptFinding
from gpuops.workspace import Workspace


def slow_parts(work: Workspace, nodes: Iterable[str]) -> list[SlowPart]:
    """Return the parts of ``nodes`` that an all-reduce found slow, and none since found well.

    A part of which the store does not have the bandwidth, as after ``validate``, is left out.
    """
    wanted = set(nodes)
    blamed = [finding for finding in accusations(work) if finding.key.node in wanted]
    try:
        with Runs(work.project.store_path, create=False) as runs:
            visits = runs.latest_visits({finding.key.node for finding in blamed}, "allreduce")
    except (OutputError, LockedError):  # it was noted where the findings were read
        return []
    found = [_slow(f, visits[f.key.node].visit.figures) for f in blamed if f.key.node in visits]
    return [part for part in found if part]


def _slow(finding: KeptFinding, figures: Mapping[str, float]) -> SlowPart | None:
    node, part = finding.key.node, finding.key.part
    reached, usual = blamed_figures(ALL_RAILS if part == "node" else part)
    if reached not in figures or usual not in figures:
        return None
    return SlowPart(node, "" if part == "node" else part, figures[reached], figures[usual])
