"""Heat map: a row for each rail, a cell for each node, as a fraction of the usual figure; the first is within nodes.

A node's figure on a rail is its best with any partner: what a slow partner or a crowded moment took away is not its
own. It is readable without colour: a point is well, a digit is tenths of the usual, an x never ended.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.isolation.evidence import Evidence
from gpuops.isolation.rounds import GroupResult
from gpuops.report.page import Page, clean, fold

WELL = 0.94
"""From this fraction of the usual on a cell is shown as well (what isolation calls slow begins there)."""
_LABEL = 10
_MOST_OUTLIERS = 12


@dataclass(frozen=True)
class Cell:
    """A node's best figure in GB/s, None where none of its groups ended; ``ratio`` of the row's usual one."""

    node: str
    gb_per_s: float | None
    ratio: float | None

    @property
    def well(self) -> bool:
        """Whether it is as it should be."""
        return self.ratio is not None and self.ratio >= WELL

    @property
    def glyph(self) -> str:
        """One letter: a point, tenths of the usual, or an x."""
        if self.ratio is None:
            return "x"
        return "." if self.well else str(int(10 * self.ratio))


@dataclass(frozen=True)
class HeatmapRow:
    """One rail (None: within nodes): what is usual there in GB/s, and a cell for each node that was measured."""

    rail: int | None
    usual: float | None
    cells: Mapping[str, Cell] = field(hash=False)

    @property
    def label(self) -> str:
        """``rail 3``, or ``in nodes``."""
        return "in nodes" if self.rail is None else f"rail {self.rail}"


@dataclass(frozen=True)
class HeatMap:
    """The rows of everything that was measured, over the nodes in the order of the inventory."""

    nodes: tuple[str, ...]
    rows: tuple[HeatmapRow, ...]

    def without_outlier(self, nodes: Iterable[str]) -> bool:
        """Whether every cell of ``nodes`` is well."""
        return all(row.cells[node].well for node in nodes for row in self.rows if node in row.cells)

    def outliers(self) -> dict[tuple[HeatmapRow, ...], list[str]]:
        """The nodes that are not well, by the rows on which they are not: those with the worst figures first."""
        rows: dict[str, list[HeatmapRow]] = {}
        for row in self.rows:
            for cell in row.cells.values():
                if not cell.well:
                    rows.setdefault(cell.node, []).append(row)
        alike: dict[tuple[HeatmapRow, ...], list[str]] = {}
        for node in sorted(rows, key=lambda node: min(row.cells[node].ratio or 0.0 for row in rows[node])):
            alike.setdefault(tuple(rows[node]), []).append(node)
        return alike


def heat_map(evidence: Evidence) -> HeatMap:
    """The map of a measurement, from its figures within nodes and on single rails."""
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
            if (measured.round.scope == "rail" or whole) and (figure.gb_per_s is not None or figure.trouble == "hang"):
                yield group.rail, figure


def _row(rail: int | None, rate_by_node: Mapping[str, float | None]) -> HeatmapRow:
    rates = sorted(rate for rate in rate_by_node.values() if rate is not None)
    usual = statistics.median(rates[len(rates) // 2 :]) if rates else None  # of few nodes half may be slow
    ratio = {node: rate / usual if rate is not None and usual else None for node, rate in rate_by_node.items()}
    return HeatmapRow(rail, usual, {node: Cell(node, rate, ratio[node]) for node, rate in rate_by_node.items()})


def lines(heat: HeatMap, page: Page) -> Iterator[str]:
    """The map as text: many nodes share a cell, which then shows the worst of them; those not well are named below."""
    width = page.width - _LABEL - 1
    size = math.ceil(len(heat.nodes) / width)
    blocks = [heat.nodes[start : start + size] for start in range(0, len(heat.nodes), size)]
    yield from page.labelled("", _legend(heat, size), 0)
    for row in heat.rows:
        yield f"{row.label:<{_LABEL}}{''.join(_worst(row, block) for block in blocks)}"
    for nodes, text in describe_outliers(heat):
        yield from page.labelled(nodes, text, _LABEL) if text else page.labelled("", nodes, 0)


def describe_outliers(heat: HeatMap) -> Iterator[tuple[str, str]]:
    """Folded nodes, and what they give where they are not well; the last may say how many more there are."""
    outliers = list(heat.outliers().items())
    for rows, nodes in outliers[:_MOST_OUTLIERS]:
        yield clean(fold(nodes)), _describe(rows, nodes)
    rest = [node for _, nodes in outliers[_MOST_OUTLIERS:] for node in nodes]
    if rest:
        yield f"and {len(rest)} more: {clean(fold(rest))}", ""


def _legend(heat: HeatMap, size: int) -> str:
    what = "a node" if size == 1 else f"the worst of {size} nodes"
    return f"{clean(fold(heat.nodes))}, each cell {what}: . well, 0-9 tenths of the usual, x hangs"


def _worst(row: HeatmapRow, nodes: Sequence[str]) -> str:
    cells = [row.cells[node] for node in nodes if node in row.cells]
    return min(cells, key=lambda cell: cell.ratio or 0.0).glyph if cells else " "


def _describe(rows: Sequence[HeatmapRow], nodes: Iterable[str]) -> str:
    """What ``nodes`` give on ``rows``: within, then on their rails together."""
    nodes = list(nodes)
    within = [row for row in rows if row.rail is None]
    rails = [row for row in rows if row.rail is not None]
    numbers = fold(str(row.rail) for row in rails)
    label = f"rail{'s' if len(rails) > 1 else ''} {numbers}"
    return "; ".join(
        [*(_span("in nodes", within, nodes) if within else ()), *(_span(label, rails, nodes) if rails else ())]
    )


def _span(label: str, rows: Sequence[HeatmapRow], nodes: Iterable[str]) -> list[str]:
    rates = [rate for node in nodes for rate in (row.cells[node].gb_per_s for row in rows) if rate is not None]
    if not rates:
        return [f"{label}: hangs"]
    low, high = f"{min(rates):.3g}", f"{max(rates):.3g}"
    usual = [row.usual for row in rows if row.usual]
    of = f" of {statistics.median(usual):.3g}" if usual else ""
    return [f"{label}: {low if low == high else f'{low}-{high}'}{of} GB/s"]


def runs(row: HeatmapRow, nodes: Iterable[str]) -> Iterator[list[Cell]]:
    """The cells of ``nodes``, neighbours that are well together and every other by itself."""
    together: list[Cell] = []
    for cell in (row.cells.get(node) for node in nodes):
        if together and not (cell and cell.well):
            yield together
            together = []
        if cell and cell.well:
            together.append(cell)
        elif cell:
            yield [cell]
    if together:
        yield together
