"""Pipeline schedule as SVG: a row a stage, a rectangle a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuops.planner.pipeline import PassTime, Schedule
from gpuops.report.planning.schedule import figures, heading, milliseconds

_MARGIN, _LABEL, _WIDTH, _ROW, _LINE, _LETTER = 16, 72, 960, 22, 16, 7.3
"""Pixels: the margin, the labels, the step, a stage's row, a line of text, and the width of a letter."""
_FORWARD, _BACKWARD = ("#c6dbef", "#9ecae1", "#6baed6"), ("#fdae6b", "#fd8d3c", "#e6550d")
"""By model chunk, again from the first after the third."""
_BOTH = "#bcbddc"
_NARROWEST = 3
"""Pixels of a pass that is drawn by itself."""


def draw(schedule: Schedule) -> str:
    """Return the picture."""
    height = 2 * _MARGIN + 8 * _LINE + schedule.stages * _ROW
    width = 2 * _MARGIN + _LABEL + _WIDTH
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    look = {"role": "img", "font-family": "monospace", "font-size": "12"}
    svg = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", **look, **size})
    SubElement(svg, "title").text = heading(schedule)
    SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    _text(
        svg,
        _MARGIN,
        _MARGIN + _LINE // 2,
        f"{heading(schedule)}; blue is forward, orange backward, violet both, white idle",
    )
    top = _MARGIN + 2 * _LINE
    for stage, events in enumerate(schedule.events):
        y = top + stage * _ROW
        _text(svg, _MARGIN, y + _LINE, f"stage {stage}")
        for run in _drawable(events, schedule.seconds / _WIDTH):
            _pass(svg, run, schedule.seconds, y)
    for number, (name, text) in enumerate(figures(schedule)):
        _text(svg, _MARGIN, top + schedule.stages * _ROW + (number + 2) * _LINE, f"{name}: {text}")
    indent(svg)
    return tostring(svg, encoding="unicode") + "\n"


def _drawable(events: Sequence[PassTime], pixel: float) -> Iterator[Sequence[PassTime]]:
    """Yield each pass; narrow ones without a gap between them come together, so that a large picture stays small."""
    run: list[PassTime] = []
    for event in events:
        is_narrow = event.end - event.start < _NARROWEST * pixel
        if run and not (is_narrow and event.start - run[-1].end < pixel / 2):
            yield run
            run = []
        run.append(event)
    yield run


def _pass(svg: Element, run: Sequence[PassTime], seconds: float, y: int) -> None:
    first, last = run[0], run[-1]
    left, right = (_MARGIN + _LABEL + time / seconds * _WIDTH for time in (first.start, last.end))
    place = {"x": f"{left:.1f}", "y": str(y), "width": f"{max(right - left - 0.5, 0.5):.1f}", "height": str(_ROW - 3)}
    colour, direction = _colour(run)
    cell = SubElement(svg, "rect", {**place, "fill": colour})
    batches = f"{first.task.micro_batch}" if len(run) == 1 else f"{first.task.micro_batch} to {last.task.micro_batch}"
    span = f"{milliseconds(first.start)} to {milliseconds(last.end)}"
    SubElement(cell, "title").text = f"stage {first.stage}, micro-batch {batches}, {direction}: {span}"
    if len(batches) * _LETTER + 2 < right - left and len(run) == 1:
        _text(svg, round(left + 2), y + _LINE - 1, batches)


def _colour(run: Sequence[PassTime]) -> tuple[str, str]:
    directions = {event.task.is_forward for event in run}
    if len(directions) > 1:
        return _BOTH, "forward and backward"
    shades, name = (_FORWARD, "forward") if directions == {True} else (_BACKWARD, "backward")
    return shades[run[0].task.chunk % len(shades)], name


def _text(svg: Element, x: int, y: int, text: str) -> None:
    SubElement(svg, "text", {"x": str(x), "y": str(y), "fill": "#222222"}).text = text
