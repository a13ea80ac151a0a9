"""Curves of a sweep as SVG: bus bandwidth over size on two logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuops.collective.crossover import Crossover, crossover_of
from gpuops.collective.engines import Point
from gpuops.collective.sweep import SweepResult, typical
from gpuops.report.page import clean, fold, format_node_count
from gpuops.report.sweep.chart import format_size

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT, _LINE = 880, 500, 72, 68, 72, 24, 16
"""Pixels: the picture, the margins around the plot, and a line of text."""
_INK, _GRID, _CURVE, _PALE, _MODEL, _MARK = "#222222", "#dddddd", "#08519c", "#9ecae1", "#cc4c02", "#54278f"
_MOST_CURVES = 64
"""More single curves would hide each other; the median is always drawn."""
_MOST_TICKS = 8
_LETTER = 6.6
"""The approximate width of a letter in pixels."""


@dataclass(frozen=True)
class _Axes:
    """The plot's ends: sizes in bytes to the right, GB/s upwards, both logarithmic."""

    sizes: tuple[float, float]
    rates: tuple[float, float]

    def x(self, size: float) -> float:
        low, high = map(math.log, self.sizes)
        return round(_LEFT + (math.log(size) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, rate: float) -> float:
        low, high = map(math.log, self.rates)
        return round(_HEIGHT - _BOTTOM - (math.log(rate) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM), 1)

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{self.x(size)},{self.y(rate)}" for size, rate in points if rate >= self.rates[0])


def draw(result: SweepResult) -> str:
    """Return the picture. Names come from nodes, so it is built as a tree, never as text."""
    svg = _svg()
    count = format_node_count(len(result.nodes))
    where = f"between {count}" if result.scope == "group" else f"within each of {count}"
    _text(svg, _LEFT, 24, f"{result.operation} {where} ({fold(result.nodes)}), {result.engine}", size=15)
    complete = result.complete or result.curves[:1]
    points = typical(complete)
    crossover = crossover_of(points)
    if crossover is None:
        _text(svg, _LEFT, _TOP, "nothing was measured")
    else:
        axes = _axes([point for curve in complete for point in curve.points])
        _grid(svg, axes)
        for curve in complete[:_MOST_CURVES] if len(complete) > 1 else ():
            _curve(svg, axes, curve.points, _PALE, 1, fold(curve.sweep.group.nodes))
        _model(svg, axes, points, crossover)
        _curve(svg, axes, points, _CURVE, 2, "")
        _dots(svg, axes, points)
        _legend(svg, crossover, len(complete))
    indent(svg)
    return tostring(svg, encoding="unicode") + "\n"


def _svg() -> Element:
    size = {"width": str(_WIDTH), "height": str(_HEIGHT), "viewBox": f"0 0 {_WIDTH} {_HEIGHT}"}
    font = {"font-family": "sans-serif", "font-size": "12"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **font, **size})
    SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    return svg


def _axes(points: Sequence[Point]) -> _Axes:
    """Return axes that end at powers of two and of ten around ``points``."""
    sizes, rates = [point.size_bytes for point in points], [point.gb_per_s for point in points]
    right = max(*sizes, 2 * min(sizes))
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))
    return _Axes((min(sizes), right), (10.0**low, 10.0 ** max(high, low + 1)))


def _grid(svg: Element, axes: _Axes) -> None:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    low, high = (round(math.log10(rate)) for rate in axes.rates)
    for power in range(low, high + 1):
        y = axes.y(10.0**power)
        _line(svg, (_LEFT, y), (right, y), _GRID)
        _text(svg, _LEFT - 8, y + 4, f"{10.0**power:g}", anchor="end")
    first, last = math.ceil(math.log2(axes.sizes[0])), math.floor(math.log2(axes.sizes[1]))
    for power in range(first, last + 1, max(1, math.ceil((last - first) / _MOST_TICKS))):
        x = axes.x(2.0**power)
        _line(svg, (x, _TOP), (x, bottom), _GRID)
        _text(svg, x, bottom + _LINE, format_size(2.0**power), anchor="middle")
    _line(svg, (_LEFT, _TOP), (_LEFT, bottom), _INK)
    _line(svg, (_LEFT, bottom), (right, bottom), _INK)
    _text(svg, _LEFT - 56, _TOP - 12, "bus bandwidth, GB/s")
    _text(svg, (_LEFT + right) / 2, bottom + 2.5 * _LINE, "size of a rank's buffer", anchor="middle")


def _curve(svg: Element, axes: _Axes, points: Sequence[Point], colour: str, width: int, title: str) -> None:
    path = axes.path((point.size_bytes, point.gb_per_s) for point in points)
    made = SubElement(svg, "polyline", {"points": path, "fill": "none", "stroke": colour, "stroke-width": str(width)})
    if title:
        SubElement(made, "title").text = clean(title)


def _dots(svg: Element, axes: _Axes, points: Sequence[Point]) -> None:
    for point in points:
        place = {"cx": str(axes.x(point.size_bytes)), "cy": str(axes.y(point.gb_per_s)), "r": "3.5", "fill": _CURVE}
        words = (format_size(point.size_bytes), f"{point.seconds * 1e6:.4g} us", f"{point.gb_per_s:.4g} GB/s")
        title = ", ".join((*words, *filter(None, [point.algorithm])))
        SubElement(SubElement(svg, "circle", place), "title").text = clean(title)


def _model(svg: Element, axes: _Axes, points: Sequence[Point], crossover: Crossover) -> None:
    """Draw the fitted curve, and a line where half of the peak is reached."""
    if crossover.half_size_bytes is not None:
        x = axes.x(crossover.half_size_bytes)
        _line(svg, (x, _TOP), (x, _HEIGHT - _BOTTOM), _MARK, dashes="2 4")
    if crossover.fit:
        rate = _rate_of(crossover, points[-1].gb_per_s / points[-1].algbw_gb_per_s)
        low, high = map(math.log, axes.sizes)
        sizes = [math.exp(low + (high - low) * step / 100) for step in range(101)]
        look = {"fill": "none", "stroke": _MODEL, "stroke-width": "1.5", "stroke-dasharray": "6 4"}
        SubElement(svg, "polyline", {"points": axes.path((size, rate(size)) for size in sizes), **look})


def _rate_of(crossover: Crossover, bus_factor: float) -> Callable[[float], float]:
    fit = crossover.fit
    return lambda size: size / fit.seconds(size) / 1e9 * bus_factor if fit else 0.0


def _legend(svg: Element, crossover: Crossover, curves: int) -> None:
    """Write the figures into the lower right corner, which a curve that rises leaves free."""
    fit, half = crossover.fit, crossover.half_size_bytes
    measured = f"measured (median of {curves} nodes)" if curves > 1 else "measured"
    peak = f"{measured}: peak {crossover.peak_gb_per_s:.4g} GB/s at {format_size(crossover.peak_size_bytes)}"
    entries = [(_CURVE, peak if crossover.is_peak_reached else f"{peak}, still rising")]
    if half is not None:
        entries.append((_MARK, f"half of the peak: {format_size(half)}"))
    if fit:
        terms = f"{fit.alpha_seconds * 1e6:.3g} us + size / {fit.algbw_gb_per_s:.3g} GB/s"
        entries.append((_MODEL, f"model: time = {terms}, n½ = {format_size(fit.half_size_bytes)}"))
    left, bottom = _WIDTH - _RIGHT - _LETTER * max(len(text) for _, text in entries), _HEIGHT - _BOTTOM
    height = round(1.25 * _LINE * len(entries))
    _rectangle(svg, left - 24, bottom - height - 20, _WIDTH - _RIGHT - left + 20, height + 12, "#ffffff")
    for number, (colour, text) in enumerate(entries):
        y = bottom - (len(entries) - number) * 1.25 * _LINE
        _rectangle(svg, left - 16, y - 9, 10, 10, colour)
        _text(svg, round(left), y, text)


def _rectangle(svg: Element, x: float, y: float, width: float, height: float, fill: str) -> None:
    place = {"x": f"{x:.0f}", "y": f"{y:.0f}", "width": f"{width:.0f}", "height": f"{height:.0f}", "fill": fill}
    SubElement(svg, "rect", place)


def _line(svg: Element, start: tuple[float, float], end: tuple[float, float], colour: str, *, dashes: str = "") -> None:
    place = {"x1": str(start[0]), "y1": str(start[1]), "x2": str(end[0]), "y2": str(end[1]), "stroke": colour}
    SubElement(svg, "line", {**place, **({"stroke-dasharray": dashes} if dashes else {})})


def _text(svg: Element, x: float, y: float, text: str, *, anchor: str = "start", size: int = 0) -> None:
    look = {"x": str(x), "y": str(y), "fill": _INK, "text-anchor": anchor}
    SubElement(svg, "text", {**look, **({"font-size": str(size)} if size else {})}).text = clean(text)
