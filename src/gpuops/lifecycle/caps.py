"""Caps: how many nodes gpuops may drain in one run and in a day, so that a wrong check cannot drain a fleet; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass

from gpuops.project import Cap

DAY = dt.timedelta(hours=24)


@dataclass(frozen=True)
class Caps:
    """The caps of a cluster of ``nodes`` nodes: at most ``run`` by one run, and ``day`` in 24 hours."""

    run: Cap
    day: Cap
    nodes: int

    def held(self, node: str, by_run: Collection[str], by_day: Collection[str]) -> str:
        """Return why ``node`` may not be drained, after those that this run drained, and all of 24 hours; else nothing.

        A node that was drained before and admitted again does not count twice.
        """
        if node not in by_run and len(by_run) >= self.run.of(self.nodes):
            return self._sentence("run", self.run, f"this run drained {len(by_run)}")
        if node not in by_day and len(by_day) >= self.day.of(self.nodes):
            return self._sentence("day", self.day, f"{len(by_day)} were drained within 24 hours")
        return ""

    def above(self, nodes: Collection[str], by_day: Collection[str]) -> str:
        """Return why ``nodes`` may not be drained together, after those of 24 hours; else nothing."""
        total, most = len({*nodes, *by_day}), self.day.of(self.nodes)
        if total <= most or not set(nodes) - set(by_day):
            return ""
        more = f"{len(set(nodes) - set(by_day))} more would make {total}"
        return self._sentence("day", self.day, f"{len(by_day)} were drained within 24 hours, and {more}")

    def _sentence(self, key: str, cap: Cap, count: str) -> str:
        most = cap.of(self.nodes)
        return f"not drained: {count}, and max_closed ({key}: {cap}) allows {most} of {self.nodes} nodes"
