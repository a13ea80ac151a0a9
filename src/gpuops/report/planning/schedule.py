"""Text report of a pipeline schedule: a line of characters a stage, and the bubble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.errors import format_count
from gpuops.planner.pipeline import PassTime, Schedule, bubble_fraction, most_kept
from gpuops.report.page import Page

_FORWARD, _BACKWARD, _IDLE, _BOTH = ">", "<", ".", "="
_MARKS = {_FORWARD: "forward", _BACKWARD: "backward", _BOTH: "both", _IDLE: "idle"}
_WIDEST_PASS = 4
"""Characters of the shortest pass at most."""
_MOST_STAGES = 40
_INDENT = 9
_MOST_LISTED = 16
_MIXED = 0.2
"""Fraction of the work in one character from which its rarer direction shows; our own choice, as the others."""


def lines(schedule: Schedule, page: Page) -> Iterator[str]:
    """Yield the schedule as a drawing, and the figures of the step and of its stages."""
    yield from page.labelled("", heading(schedule), 0)
    yield ""
    label = len(f"stage {schedule.stages - 1}") + 2
    columns = _columns(schedule, page.width - label)
    yield f"{'':<{label}}0{milliseconds(schedule.seconds):>{columns - 1}}"
    rows = [_cells(events, schedule.seconds, columns) for events in schedule.events[:_MOST_STAGES]]
    for stage, row in enumerate(rows):
        yield f"{f'stage {stage}':<{label}}{row}"
    if schedule.stages > _MOST_STAGES:
        yield f"and {schedule.stages - _MOST_STAGES} more stages"
    yield ""
    drawn = {character for row in rows for character in row}
    marks = ", ".join(f"{mark} {name}" for mark, name in _MARKS.items() if mark in drawn)
    numbers = "; numbers are micro-batches" if "0" in drawn else ""
    yield from page.labelled("", f"{marks}{numbers}; a character is {milliseconds(schedule.seconds / columns)}", 0)
    yield ""
    for name, text in figures(schedule):
        yield from page.labelled(name, text, _INDENT)


def heading(schedule: Schedule) -> str:
    """Return the schedule and its size."""
    chunks = f", {schedule.chunks_per_stage} model chunks a stage" if schedule.chunks_per_stage > 1 else ""
    batches = f"{schedule.micro_batches} micro-batch{'es' if schedule.micro_batches > 1 else ''}"
    return f"{schedule.kind}: {format_count(schedule.stages, 'stage')}, {batches}{chunks}"


def figures(schedule: Schedule) -> Iterator[tuple[str, str]]:
    """Yield the time of the step, its bubble beside the closed form, and what stages wait and keep, each by name."""
    bubble = schedule.seconds / schedule.busy_seconds - 1
    closed = bubble_fraction(schedule.stages, schedule.micro_batches, schedule.chunks_per_stage)
    form = f"(p-1)/{'(m·v)' if schedule.chunks_per_stage > 1 else 'm'}"
    same = f"as {form} says"
    other = f"{form} says {100 * closed:.1f} %, for equal stages and links without delay"
    yield (
        "step",
        f"{milliseconds(schedule.seconds)}, of which the busiest stage works {milliseconds(schedule.busy_seconds)}",
    )
    yield "bubble", f"{100 * bubble:.1f} % of that work, {same if abs(bubble - closed) < 1e-9 else other}"
    idle = [1 - sum(event.end - event.start for event in events) / schedule.seconds for events in schedule.events]
    yield "idle", _by_stage([f"{100 * part:.0f} %" for part in idle], "of the step")
    chunks = " (counted once a model chunk)" if schedule.chunks_per_stage > 1 else ""
    kept = [str(most_kept(events)) for events in schedule.events]
    yield "memory", f"keeps the activations of {_by_stage(kept, f'micro-batches{chunks}')}"


def _by_stage(values: Sequence[str], of: str) -> str:
    """Return one value for all stages, all values, or the first and the last of many."""
    if len(set(values)) == 1:
        return f"{values[0]} {of}"
    if len(values) > _MOST_LISTED:
        return f"{values[0]} {of} at the first stage, {values[-1]} at the last"
    return f"{', '.join(values)} {of}, stage by stage"


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds with three digits or more."""
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _columns(schedule: Schedule, most: int) -> int:
    """Return the characters of the whole step: a whole number for the shortest pass, if there is room."""
    shortest = min(event.end - event.start for events in schedule.events for event in events)
    passes = schedule.seconds / shortest if shortest else most
    each = min(int(most / passes), _WIDEST_PASS)
    return max(round(passes * each), len("0 1,000 ms") + 2) if each else most


def _cells(events: Sequence[PassTime], seconds: float, columns: int) -> str:
    """Return one character for each part of the step: a number and marks for each pass, if passes are that long."""
    if seconds / columns > 1.001 * min(event.end - event.start for event in events):
        return _dense(events, seconds, columns)
    cells, scale = [_IDLE] * columns, columns / seconds
    for event in events:
        first, end = (int(time * scale + 0.5) for time in (event.start, event.end))
        mark = _FORWARD if event.task.is_forward else _BACKWARD
        text = f"{event.task.micro_batch}{mark}"
        cells[first:end] = (text if len(text) <= end - first else "").ljust(end - first, mark)
    return "".join(cells[:columns])


def _dense(events: Sequence[PassTime], seconds: float, columns: int) -> str:
    """Return one character for each part of the step, by what takes most of it: `=` stands for both directions."""
    width = seconds / columns
    work = [[0.0, 0.0] for _ in range(columns)]
    for event in events:
        for column in range(int(event.start / width), min(columns, int(event.end / width) + 1)):
            inside = min(event.end, (column + 1) * width) - max(event.start, column * width)
            work[column][event.task.is_forward] += max(inside, 0.0)
    return "".join(_mark(ahead, back, width) for back, ahead in work)


def _mark(ahead: float, back: float, width: float) -> str:
    if ahead + back < width / 2:
        return _IDLE
    if min(ahead, back) > _MIXED * (ahead + back):
        return _BOTH
    return _FORWARD if ahead > back else _BACKWARD
