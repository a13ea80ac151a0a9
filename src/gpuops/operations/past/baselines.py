"""What the fleet's own nodes reached in all-reduces, from the store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable

from gpuops.errors import LockedError, OutputError
from gpuops.planner.price import SlowPart
from gpuops.store import Runs
from gpuops.trends.baselines import Baseline, baseline
from gpuops.workspace import Workspace

WITHIN, RAIL, PAIR = "within a node", "a rail of two nodes", "two nodes"


def measured_here(work: Workspace, nodes: Collection[str], slow: Iterable[SlowPart] = ()) -> dict[str, Baseline]:
    """Return the baselines of these nodes, which are of one kind, by kind of run; note a store that cannot be read.

    Only all-reduces of the usual payload count, and of each node or pair only the latest. Of few nodes, most pairs may
    include one with a ``slow`` part: these count with what its peers reach.
    """
    healthy = {part.node: part.expected_gb_per_s for part in slow if not part.is_inside}
    now = dt.datetime.now(dt.timezone.utc)
    figures: dict[str, dict[tuple[object, ...], tuple[dt.datetime, float]]] = {WITHIN: {}, RAIL: {}, PAIR: {}}
    try:
        with Runs(work.project.store_path, create=False) as runs:
            visits = runs.latest_visits(nodes, "allreduce")
            level = runs.level_by_run(visit.run for visit in visits.values())
            for node, kept in visits.items():
                if not level[kept.run] and "node.gb_per_s" in kept.visit.figures:
                    figures[WITHIN][(node,)] = (kept.at, kept.visit.figures["node.gb_per_s"])
            for link in runs.links_of("allreduce"):
                seen = link.link
                if {seen.a, seen.b} <= set(nodes):
                    kind = PAIR if seen.rail is None else RAIL
                    rate = max(seen.gb_per_s, healthy.get(seen.a, 0.0), healthy.get(seen.b, 0.0))
                    figures[kind][seen.a, seen.b, seen.rail] = (link.at, rate)
    except (OutputError, LockedError) as error:
        work.note(f"what these nodes reached themselves is unknown: {error}")
    found = {kind: baseline(latest.values(), now) for kind, latest in figures.items()}
    return {kind: each for kind, each in found.items() if each}
