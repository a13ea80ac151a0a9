"""Drift of a part against its own past and against like parts: medians, and a CUSUM with a stated run length; pure.

A temperature depends on load, slot and room. So a GPU is compared with the other GPUs of its node in the same run, that
difference with the same slot of like nodes in the same run, and what remains with its own past at the same load. A node
is compared with like nodes at the same load in the same run. What all parts of a group do blames none of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gpuops.judging.finding import Finding, NotApplicable
from gpuops.trends.past import NodePast, Record, Sight, Usual, UsualByRun, too_few
from gpuops.trends.spread import robust_spread

SLACK = 1.0
"""Of the CUSUM, in deviations: it is meant for shifts of two and more."""
LIMIT = 8.0
"""`gpuops.trends.chance.cusum_run_length` (1, 8) = 4.6e7 normal values. 18 readings of a node five times a day are
2,700 in a month: one false alarm in 17,000 node-months. Real tails are heavier; the reserve is for them."""
LARGEST_SCORE = 4.0
"""A score counts as at most this, so that one or two wild values raise no alarm."""
LEAST_DEVIATION_CELSIUS = 2.0
"""Sensors print whole degrees, and eight values say little about their spread; a choice."""
LEAST_SHIFT_CELSIUS = 5.0
"""Less is within what dust and seasons do to a healthy card; a choice."""
REFERENCE = 8
"""Earlier runs at the same load from which the own past is learned."""
RECENT = 5
"""Latest comparable runs that are judged against it."""
NEEDED_RUNS = REFERENCE + RECENT
LEAST_PEERS = 4
"""Nodes whose median counts as usual; with fewer one odd node moves it."""
_UNEVEN = 0.25
_UNEVEN_WATTS = 15.0
_STEP = math.log(1.5)
_READINGS = {"temperature_celsius": "temperature", "memory_temperature_celsius": "memory temperature"}
_NODE = "node"


@dataclass(frozen=True)
class Deviation:
    """A part in one run: degrees above what is usual, at a ``load`` class; ``found`` is the reading itself."""

    run: int
    load: int
    celsius: float
    found: float


def usual(pasts: Iterable[NodePast]) -> UsualByRun:
    """Return what is usual among nodes of one kind in each run: by slot against its node, and of the nodes."""
    values: dict[tuple[str, int, str, int], list[float]] = {}
    for past in pasts:
        for sight in past.sights:
            for reading in _READINGS:
                readings, load = _read(sight, reading)
                middle = median(readings.values()) if readings else 0.0
                for slot, value in readings.items():
                    values.setdefault((reading, sight.run, slot, load), []).append(value - middle)
                if readings:
                    values.setdefault((reading, sight.run, _NODE, load), []).append(middle)
    return {key: Usual(median(own), len(own)) for key, own in values.items()}


def _read(sight: Sight, reading: str) -> tuple[Mapping[str, float], int]:
    """Return a reading of each GPU, and their class of load; nothing if their loads differ.

    Watts are the load; a class is a factor of 1.5 wide. Without watts all runs are one class.
    """
    readings = sight.by_gpu.get(reading, {})
    watts = list(sight.by_gpu.get("power_draw_watts", {}).values())
    if not watts:
        return readings, 0
    middle = median(watts)
    if max(watts) - min(watts) > max(_UNEVEN_WATTS, _UNEVEN * middle):
        return {}, 0
    return readings, round(math.log(max(1.0, middle)) / _STEP)


def drifting(record: Record) -> Iterator[Finding | NotApplicable]:
    """Yield each GPU, and the node, that has become hotter than its own past and than its like."""
    past = record.past
    deviations = {} if past.why else _deviations(record)
    longest = max(map(len, deviations.values()), default=0)
    if past.why or longest < NEEDED_RUNS:
        yield NotApplicable(past.why or too_few(longest, NEEDED_RUNS) + " with GPUs at one load")
        return
    for (reading, slot), own in deviations.items():
        if own[-1].run == past.now.run and (shift := _shift(own)) is not None:
            yield _finding(reading, slot, own, shift)


def _deviations(record: Record) -> dict[tuple[str, str], list[Deviation]]:
    """Return how much each GPU that is still in its slot, and the node, deviated in every comparable run."""
    found: dict[tuple[str, str], list[Deviation]] = {}
    serials = record.past.now.serials
    for sight in record.past.sights:
        for reading in _READINGS:
            readings, load = _read(sight, reading)
            middle = median(readings.values()) if readings else 0.0
            node = record.usual.get((reading, sight.run, _NODE, load), Usual(0.0, 0))
            if readings and node.nodes >= LEAST_PEERS:
                own = Deviation(sight.run, load, middle - node.value, middle)
                found.setdefault((reading, _NODE), []).append(own)
            for slot, value in readings.items() if len(readings) > 2 else ():
                if sight.serials.get(slot, "") == serials.get(slot, ""):
                    like = record.usual.get((reading, sight.run, slot, load), Usual(0.0, 0))
                    above = value - middle - (like.value if like.nodes >= LEAST_PEERS else 0.0)
                    found.setdefault((reading, slot), []).append(Deviation(sight.run, load, above, value))
    return found


def _shift(own: Sequence[Deviation]) -> float | None:
    """Return by how many degrees the recent values are above the older ones; None if that may be chance."""
    old, recent = own[:-RECENT], own[-RECENT:]
    total, shifts = 0.0, []
    for each in recent:
        like = [value.celsius for value in old if value.load == each.load]
        if len(like) < REFERENCE:
            continue
        middle, deviation = _spread(like)
        shifts.append(each.celsius - middle)
        score = max(-LARGEST_SCORE, min(LARGEST_SCORE, shifts[-1] / deviation))
        total = max(0.0, total + score - SLACK)
    if len(shifts) < 3 or total <= LIMIT:
        return None
    shift = median(shifts)
    return shift if min(shift, shifts[-1], recent[-1].celsius) >= LEAST_SHIFT_CELSIUS else None


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the median and a robust standard deviation, which is never below `LEAST_DEVIATION_CELSIUS`."""
    middle, deviation = robust_spread(values)
    return middle, max(LEAST_DEVIATION_CELSIUS, deviation)


def _finding(reading: str, slot: str, own: Sequence[Deviation], shift: float) -> Finding:
    what, now = _READINGS[reading], own[-1]
    of_node = slot == _NODE
    like = "like nodes at the same load" if of_node else "the other GPUs of the node at the same load"
    message = (
        f"{what} {now.found:.0f} °C, {now.celsius:.0f} °C above {like}; "
        f"it was {now.celsius - shift:+.0f} °C in {len(own) - RECENT} earlier runs"
    )
    return Finding(
        message,
        expected=round(now.celsius - shift, 1),
        found=round(now.celsius, 1),
        unit="°C above its like",
        part=slot,
        code="node-temperature" if of_node else reading.removesuffix("_celsius").replace("_", "-"),
        fix="look at fans, filters and inlet of this node" if of_node else "",
    )
