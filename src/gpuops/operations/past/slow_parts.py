"""The parts of nodes that a measurement found slow, with what they reached, from the store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from gpuops.errors import LockedError, OutputError
from gpuops.operations.past.recall import when
from gpuops.planner.price import SlowPart
from gpuops.results.kept import ALL_GPUS, ALL_RAILS, blamed_figures
from gpuops.store import Runs
from gpuops.store.records import KeptFinding
from gpuops.workspace import Workspace


def slow_parts(work: Workspace, accusations: Iterable[KeptFinding], nodes: Collection[str]) -> list[SlowPart]:
    """Return the parts of ``nodes`` that are blamed, with their bandwidths.

    Note each part of which the store does not have the bandwidth, as if it failed: it has no price.
    """
    found: dict[SlowPart, None] = {}  # a part may be blamed twice
    try:
        with Runs(work.project.store_path, create=False) as runs:
            for finding in accusations:
                if finding.key.node in nodes:
                    slow = _slow(runs, finding)
                    found.update(dict.fromkeys(slow))
                    if not slow:
                        work.note(_without_price(finding))
    except (OutputError, LockedError):  # it was noted where the findings were read
        return []
    return list(found)


def _slow(runs: Runs, finding: KeptFinding) -> list[SlowPart]:
    """Return the part by the latest run that measured it; a later run may have seen that it is still blamed."""
    visits = reversed(runs.visits(finding.key.node))
    measured = (list(_measured(finding, kept.visit.figures)) for kept in visits if kept.run >= finding.first_run)
    return next(filter(None, measured), [])


def _measured(finding: KeptFinding, figures: Mapping[str, float]) -> Iterator[SlowPart]:
    """Yield the part of a finding; two if the node is slow on every rail and among its own GPUs."""
    node, part = finding.key.node, finding.key.part
    for own in (ALL_RAILS, ALL_GPUS) if part == "node" else (part,):
        reached, usual = blamed_figures(own)
        if reached in figures and usual in figures:
            yield SlowPart(node, "" if own == ALL_RAILS else own, figures[reached], figures[usual])


def _without_price(finding: KeptFinding) -> str:
    node, part, kind = finding.key.node, finding.key.part, finding.key.code
    name = node if part == "node" else f"{node} {part}"
    return f"{when(finding)} blamed {name} ({kind}) without a bandwidth, so no estimate includes what it costs"
