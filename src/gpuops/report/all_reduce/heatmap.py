"""Heat map as text: one row per rail, one cell per node, in tenths of the usual rate; the first row is within nodes.

It is readable without colour: a dot is normal, a digit is tenths of the usual rate, an x is a hang.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence

from gpuops.collective.heat_map import Cell, HeatMap, HeatmapRow
from gpuops.report.page import Page, clean, fold, fold_briefly, wrap

_LABEL = 10
_MOST_OUTLIERS, _MOST_IN_TEXT = 12, 6
_LIST = 100


def lines(heat: HeatMap, page: Page) -> Iterator[str]:
    """Yield the map as text; many nodes share a cell, which shows the worst of them. Outliers are listed below."""
    width = page.width - _LABEL - 1
    size = math.ceil(len(heat.nodes) / width)
    blocks = [heat.nodes[start : start + size] for start in range(0, len(heat.nodes), size)]
    yield from page.labelled("", _legend(heat, size), 0)
    for row in heat.rows:
        yield f"{row.label:<{_LABEL}}{''.join(_worst(row, block) for block in blocks)}"
    for nodes, text in describe_outliers(heat, _MOST_IN_TEXT):
        *above, label = wrap(nodes, page.width)
        yield from (*above, *(page.labelled(label, text, _LABEL) if text else [label]))


def describe_outliers(heat: HeatMap, most: int = _MOST_OUTLIERS) -> Iterator[tuple[str, str]]:
    """Yield folded nodes with their abnormal rates; the last item may count the nodes that are left out."""
    outliers = list(heat.outliers().items())
    for rows, nodes in outliers[:most]:
        yield clean(fold_briefly(nodes, _LIST)), _describe(rows, nodes)
    rest = [node for _, nodes in outliers[most:] for node in nodes]
    if rest:
        yield f"and {len(rest)} more: {clean(fold_briefly(rest, _LIST))}", ""


def _legend(heat: HeatMap, size: int) -> str:
    what = "a node" if size == 1 else f"the worst of {size} nodes"
    return f"{clean(fold_briefly(heat.nodes, _LIST))}, each cell {what}: . normal, 0-9 tenths of usual, x hangs"


def _worst(row: HeatmapRow, nodes: Sequence[str]) -> str:
    cells = [row.cells[node] for node in nodes if node in row.cells]
    return min(cells, key=lambda cell: cell.ratio or 0.0).glyph if cells else " "


def _describe(rows: Sequence[HeatmapRow], nodes: Iterable[str]) -> str:
    """Return the rates of ``nodes`` on ``rows``: within nodes, then on all their rails."""
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
    """Yield the cells of ``nodes``: adjacent normal cells together, every other cell by itself."""
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
