"""Grid of a placement as SVG."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuops.placement import Placement, Rank
from gpuops.report.grid import Span, axes, heading, spans
from gpuops.report.page import clean, fold

_ROW, _LINE, _MARGIN = 60, 20, 16
_LETTER = 7.5
"""Pixels: the heights of a row and of a line of text, the margin, and the approximate width of a letter."""


def draw(placement: Placement) -> str:
    """Return an SVG document: a row per node, a cell per rank, coloured by model replica, darker for later stages.

    The texts come from nodes and users, so the document is built as a tree, never as text.
    """
    rows = [spans(placement, node.name) for node in placement.nodes]
    below = [f"{axis}: {text}" for axis, text in axes(placement)]
    below += [f"spares: {fold(placement.spares)}"] if placement.spares else []
    cell = max(_least_cell(span) for row in rows for span in row)
    left = 2 * _MARGIN + max(_width(clean(node.name)) for node in placement.nodes)
    right = left + max(len(node.gpus) for node in placement.nodes) * cell
    top = _MARGIN + 2 * _LINE
    bottom = top + len(rows) * _ROW
    width = max(right, *(_width(line) for line in [heading(placement), *below])) + _MARGIN
    svg = _svg(width, bottom + _LINE * (len(below) + 1))
    _text(svg, _MARGIN, _MARGIN + 8, heading(placement))
    for y, node, row in zip(range(top, bottom, _ROW), placement.nodes, rows, strict=True):
        _text(svg, _MARGIN, y + 20, node.name)
        _draw_spans(svg, placement, row, left, y, cell)
    for number, line in enumerate(below):
        _text(svg, _MARGIN, bottom + _LINE * (number + 1), line)
    indent(svg)
    return tostring(svg, encoding="unicode") + "\n"


def _width(text: str) -> int:
    return round(_LETTER * len(text))


def _least_cell(span: Span) -> int:
    """Return the minimum width of a cell for its own text and for the text below the span."""
    shared = _width(f" {'·'.join(span.coordinates)} {span.link} ") // len(span.ranks)
    return max(_width(f" r{span.ranks[-1].rank} "), _width(" GPU99 "), shared + 1)


def _svg(width: int, height: int) -> Element:
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "font-family": "monospace", "font-size": "12", **size})
    SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    return svg


def _draw_spans(svg: Element, placement: Placement, row: Iterable[Span], left: int, y: int, cell: int) -> None:
    for span in row:
        x, width = left + span.ranks[0].local_rank * cell, len(span.ranks) * cell
        for number, rank in enumerate(span.ranks):
            _draw_rank(svg, placement, rank, x + number * cell, y, cell)
        _rectangle(svg, x, y, width - 4, fill="none", stroke="#444444")
        _text(svg, x + 4, y + _ROW - 16, "·".join(span.coordinates))
        _text(svg, x + width - 8, y + _ROW - 16, span.link, anchor="end")


def _draw_rank(svg: Element, placement: Placement, rank: Rank, x: int, y: int, width: int) -> None:
    cell = _rectangle(svg, x, y, width - 4, fill=_colour(placement, rank), stroke="none")
    beside = f"NIC {rank.nic or 'unknown'}, NUMA node {'unknown' if rank.numa is None else rank.numa}"
    place = f"tp{rank.tp} cp{rank.cp} ep{rank.ep} dp{rank.dp} pp{rank.pp}"
    SubElement(cell, "title").text = clean(f"rank {rank.rank}: {rank.node} GPU {rank.gpu}, {beside}, {place}")
    _text(svg, x + 4, y + 14, f"r{rank.rank}")
    _text(svg, x + 4, y + 29, f"GPU{rank.gpu}")


def _colour(placement: Placement, rank: Rank) -> str:
    layout = placement.layout
    lightness = 0.92 - 0.22 * rank.pp / layout.pp
    red, green, blue = colorsys.hls_to_rgb(rank.dp / layout.dp, lightness, 0.6)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


def _rectangle(svg: Element, x: int, y: int, width: int, **look: str) -> Element:
    place = {"x": str(x), "y": str(y), "width": str(width), "height": str(_ROW - 10), "rx": "4"}
    return SubElement(svg, "rect", {**place, **look})


def _text(svg: Element, x: int, y: int, text: str, anchor: str = "start") -> None:
    SubElement(svg, "text", {"x": str(x), "y": str(y), "text-anchor": anchor}).text = clean(text)
