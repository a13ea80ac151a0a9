"""The results of a measurement by node and rail, as ratios to the usual one; pure.

A node's result on a rail is its best with any partner: a loss caused by a slow partner or by congestion is not its own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gpuops.isolation.evidence import Evidence
from gpuops.isolation.rounds import GroupResult

WELL = 0.94
"""Minimum ratio of a healthy cell; below it, isolation calls a part slow."""


@dataclass(frozen=True)
class Cell:
    """A node's best result in GB/s, None if none of its groups finished; ``ratio`` is relative to the row's usual."""

    node: str
    gb_per_s: float | None
    ratio: float | None

    @property
    def well(self) -> bool:
        """True if the cell is healthy."""
        return self.ratio is not None and self.ratio >= WELL

    @property
    def glyph(self) -> str:
        """One letter: a dot, tenths of the usual, or an x."""
        if self.ratio is None:
            return "x"
        return "." if self.well else str(int(10 * self.ratio))


@dataclass(frozen=True)
class HeatmapRow:
    """One rail (None: within nodes): its usual bandwidth in GB/s, and a cell for each measured node."""

    rail: int | None
    usual: float | None
    cells: Mapping[str, Cell] = field(hash=False)

    @property
    def label(self) -> str:
        """``rail 3``, or ``in nodes``."""
        return "in nodes" if self.rail is None else f"rail {self.rail}"


@dataclass(frozen=True)
class HeatMap:
    """The rows of everything that was measured, over the nodes in inventory order."""

    nodes: tuple[str, ...]
    rows: tuple[HeatmapRow, ...]

    def without_outlier(self, nodes: Iterable[str]) -> bool:
        """Return True if every cell of ``nodes`` is healthy."""
        return all(row.cells[node].well for node in nodes for row in self.rows if node in row.cells)

    def outliers(self) -> dict[tuple[HeatmapRow, ...], list[str]]:
        """Return the nodes with unhealthy cells, by the rows that hold them; the worst results come first."""
        rows: dict[str, list[HeatmapRow]] = {}
        for row in self.rows:
            for cell in row.cells.values():
                if not cell.well:
                    rows.setdefault(cell.node, []).append(row)
        peers: dict[tuple[HeatmapRow, ...], list[str]] = {}
        for node in sorted(rows, key=lambda node: min(row.cells[node].ratio or 0.0 for row in rows[node])):
            peers.setdefault(tuple(rows[node]), []).append(node)
        return peers


def heat_map(evidence: Evidence) -> HeatMap:
    """Return the heat map of a measurement, from its results within nodes and on single rails."""
    best: dict[int | None, dict[str, float | None]] = {}
    for rail, figure in _figures(evidence):
        row = best.setdefault(rail, {})
        for node in figure.group.nodes:
            row[node] = max((x for x in (row.get(node), figure.gb_per_s) if x is not None), default=None)
    rails = sorted(best, key=lambda rail: -1 if rail is None else rail)
    return HeatMap(tuple(evidence.fabric.nodes), tuple(_row(rail, best[rail]) for rail in rails))


def _figures(evidence: Evidence) -> Iterator[tuple[int | None, GroupResult]]:
    for measured in evidence.rounds:
        for figure in measured.figures:
            group = figure.group
            whole = measured.round.scope == "node" and not group.gpus and not group.variant
            if (measured.round.scope == "rail" or whole) and (figure.gb_per_s is not None or figure.trouble):
                yield group.rail, figure


def _row(rail: int | None, rate_by_node: Mapping[str, float | None]) -> HeatmapRow:
    rates = sorted(rate for rate in rate_by_node.values() if rate is not None)
    usual = statistics.median(rates[len(rates) // 2 :]) if rates else None  # with few nodes, half may be slow
    ratios = {node: rate / usual if rate is not None and usual else None for node, rate in rate_by_node.items()}
    return HeatmapRow(rail, usual, {node: Cell(node, rate, ratios[node]) for node, rate in rate_by_node.items()})
