"""Heat map as SVG: a strip per rail over all nodes and, for few nodes, every pair on each rail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuops.collective.heat_map import WELL, Cell, HeatMap, HeatmapRow, heat_map
from gpuops.isolation.evidence import Evidence
from gpuops.report.all_reduce.heatmap import describe_outliers, runs
from gpuops.report.page import clean, fold

_MARGIN, _LINE, _LABEL, _BAND = 16, 16, 72, 960
"""Pixels: the margin, a line of text, the column of labels, and the maximum width of a band of nodes."""
_MOST_IN_A_BAND, _LARGEST_CELL, _ROW = 160, 24, 12
_MOST_PAIRED = 64
_RAMP = ((WELL, "#b7d7b0"), (0.85, "#fee391"), (0.7, "#fe9929"), (0.5, "#cc4c02"), (0.0, "#7f2704"))
_HANG = "#000000"
"""One ramp from light to dark, readable in greyscale and with red-green colour blindness."""


def draw(evidence: Evidence) -> str:
    """Return the map of a measurement. Names come from nodes, so it is built as a tree, never as text."""
    heat = heat_map(evidence)
    svg = _svg(heat)
    y = _legend(svg, _MARGIN + 2 * _LINE)
    for nodes, text in describe_outliers(heat):
        y += _LINE
        _text(svg, _MARGIN, y, f"{nodes}: {text}" if text else nodes)
    for start in range(0, len(heat.nodes), _MOST_IN_A_BAND):
        y = _band(svg, heat, heat.nodes[start : start + _MOST_IN_A_BAND], y + _LINE)
    if 2 < len(heat.nodes) <= _MOST_PAIRED:
        y = _pairs(svg, heat, evidence, y + 2 * _LINE)
    width, height = _LABEL + _BAND + 2 * _MARGIN, y + 2 * _LINE
    svg.attrib |= {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    indent(svg)
    return tostring(svg, encoding="unicode") + "\n"


def _svg(heat: HeatMap) -> Element:
    """Return the empty document, with a text description for people who cannot see it."""
    look = {"role": "img", "aria-labelledby": "title desc", "font-family": "monospace", "font-size": "12"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **look})
    title = f"All-reduce on {clean(fold(heat.nodes))}"
    SubElement(svg, "title", {"id": "title"}).text = title
    outliers = "; ".join(f"{nodes}: {text}" if text else nodes for nodes, text in describe_outliers(heat))
    about = "A heat map: one row within nodes and one per rail, one cell per node; darker is slower. "
    SubElement(svg, "desc", {"id": "desc"}).text = about + (f"Not normal: {outliers}" if outliers else "All normal.")
    SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _text(svg, _MARGIN, _MARGIN + 10, title)
    return svg


def _legend(svg: Element, y: int) -> int:
    words = (f"{100 * WELL:.0f} % of the usual or more", "85 %", "70 %", "50 %", "less", "hangs")
    x = _MARGIN
    for colour, word in zip((*(colour for _, colour in _RAMP), _HANG), words, strict=True):
        _rectangle(svg, x, y - 10, 12, colour, "")
        _text(svg, x + 18, y, word)
        x += 18 + 8 * len(word) + 16
    return y + _LINE // 2


def _band(svg: Element, heat: HeatMap, nodes: Sequence[str], y: int) -> int:
    """Draw a strip for each row over ``nodes``, adjacent normal nodes as one rectangle; return the next y.

    If there are several bands, those without outliers are one line of text each.
    """
    if len(nodes) < len(heat.nodes) and heat.without_outlier(nodes):
        _text(svg, _MARGIN, y + 8, f"{fold(nodes)}: all normal")
        return y
    cell = min(_LARGEST_CELL, _BAND // min(len(heat.nodes), _MOST_IN_A_BAND))
    places = {node: _MARGIN + _LABEL + number * cell for number, node in enumerate(nodes)}
    _text(svg, _MARGIN + _LABEL, y + 8, nodes[0] if len(nodes) == 1 else f"{nodes[0]} … {nodes[-1]}")
    for number, row in enumerate(heat.rows):
        top = y + _LINE + number * (_ROW + 2)
        _text(svg, _MARGIN, top + 10, row.label)
        for run in runs(row, nodes):
            width = places[run[-1].node] - places[run[0].node] + cell - 1
            _rectangle(svg, places[run[0].node], top, width, _colour(run[0].ratio), _title(row, run))
            if run[0].ratio is None:
                _text(svg, places[run[0].node] + 1, top + 10, "x", fill="#ffffff")
    return y + _LINE + len(heat.rows) * (_ROW + 2)


def _title(row: HeatmapRow, run: Sequence[Cell]) -> str:
    rates = [cell.gb_per_s for cell in run if cell.gb_per_s is not None]
    span = (
        f"{min(rates):.3g} to {max(rates):.3g} GB/s" if len(rates) > 1 else f"{rates[0]:.3g} GB/s" if rates else "hangs"
    )
    return f"{fold(cell.node for cell in run)}, {row.label}: {span}"


def _pairs(svg: Element, heat: HeatMap, evidence: Evidence, y: int) -> int:
    """Draw a square per rail with a cell for each pair of nodes that ran there, at its best rate."""
    size = max(2, min(12, _BAND // 4 // len(heat.nodes)))
    side = size * len(heat.nodes)
    rails = [row for row in heat.rows if row.rail is not None]
    across = max(1, (_BAND + _LABEL) // (side + 40))
    _text(svg, _MARGIN, y, f"pairs of nodes by rail, rows and columns from {heat.nodes[0]} to {heat.nodes[-1]}")
    for number, row in enumerate(rails):
        left = _MARGIN + number % across * (side + 40)
        top = y + 2 * _LINE + number // across * (side + 3 * _LINE)
        _text(svg, left, top - 6, row.label)
        _rectangle(svg, left, top, side, "#f7f7f7", "", height=side)
        for (a, b), rate in _best(evidence, row).items():
            ratio = rate / row.usual if rate is not None and row.usual else None
            title = f"{a} and {b}, {row.label}: {'hangs' if rate is None else f'{rate:.3g} GB/s'}"
            for one, other in ((a, b), (b, a)):
                x, down = (heat.nodes.index(node) * size for node in (one, other))
                _rectangle(svg, left + x, top + down, size, _colour(ratio), title, height=size)
    return y + 2 * _LINE + -(-len(rails) // across) * (side + 3 * _LINE)


def _best(evidence: Evidence, row: HeatmapRow) -> Mapping[tuple[str, str], float | None]:
    best: dict[tuple[str, str], float | None] = {}
    for pair, rate in _paired(evidence, row.rail):
        best_so_far = best.get(pair)
        best[pair] = rate if best_so_far is None else max(best_so_far, rate or 0.0)
    return best


def _paired(evidence: Evidence, rail: int | None) -> Iterator[tuple[tuple[str, str], float | None]]:
    for figure in (figure for measured in evidence.rounds for figure in measured.figures):
        nodes = figure.group.nodes
        if figure.group.rail == rail and len(nodes) == 2 and (figure.gb_per_s is not None or figure.trouble == "hang"):
            yield (nodes[0], nodes[1]), figure.gb_per_s


def _colour(ratio: float | None) -> str:
    if ratio is None:
        return _HANG
    return next(colour for least, colour in _RAMP if ratio >= least)


def _rectangle(svg: Element, x: int, y: int, width: int, fill: str, title: str, height: int = _ROW) -> None:
    place = {"x": str(x), "y": str(y), "width": str(width), "height": str(height), "fill": fill}
    made = SubElement(svg, "rect", place)
    if title:
        SubElement(made, "title").text = clean(title)


def _text(svg: Element, x: int, y: int, text: str, fill: str = "#222222") -> None:
    SubElement(svg, "text", {"x": str(x), "y": str(y), "fill": fill}).text = clean(text)
