"""Drift of a part against its own past and against like parts: medians, and a CUSUM with a stated run length; pure.

A temperature depends on load, slot and room. So a GPU is compared with the other GPUs of its node in the same run, less
what it is hotter for its power; that difference with the same slot of like nodes in the same run, and what remains with
its own past at a similar load. A node is compared with like nodes in the same run, less what it is hotter for its load.
What all parts of a group do blames none of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
LEAST_DEVIATION_CELSIUS = 1.0
"""Of a GPU: sensors print whole degrees. Eight values say little about their spread, so that the `UsualByRun.noise` of
all GPUs is the least, too; a choice."""
LEAST_DEVIATION_OF_NODES_CELSIUS = 2.0
"""Of a node, whose noise is not that of its GPUs; a choice."""
LEAST_SHIFT_CELSIUS, LEAST_SHIFT_DEVIATIONS = 4.0, 2.5
"""Less is within what dust and seasons do to a healthy card; choices."""
REFERENCE = 8
"""Earlier runs at the same load from which the own past is learned."""
RECENT = 5
"""Latest comparable runs that are judged against it."""
LATEST = 3
"""Of these, as many have to show the shift: a part that fails soon gets hotter from run to run; a choice."""
NEEDED_RUNS = REFERENCE + RECENT
LEAST_PEERS = 4
"""Nodes whose median counts as usual; with fewer one odd node moves it."""
FEWEST_GPUS = 3
"""Of two it is unknown which one is usual."""
_UNEVEN, _UNEVEN_WATTS = 0.5, 15.0
"""If one GPU draws less than this fraction of another's power, and so much less, one of them is idle: it may be hot
from a job that just ended, or cold in one that just began. Choices."""
_STEEPEST = 0.2
"""°C for each watt; cooling that cannot do better would let an H100 reach 140 °C above its inlet."""
_WATTS = "power_draw_watts"
_STEP, _ALIKE_LOAD = math.log(2), 1.5
"""Of loads: the width of a class in which nodes are compared, and the factor between runs of one node. Choices."""
_READINGS = {"temperature_celsius": "temperature", "memory_temperature_celsius": "memory temperature"}
_NODE = "node"


@dataclass(frozen=True)
class Deviation:
    """A part in one run: degrees above what is usual, while its GPUs drew ``watts``; ``found`` is the reading."""

    run: int
    watts: float
    celsius: float
    found: float


def usual(pasts: Collection[NodePast]) -> UsualByRun:
    """Return what is usual among nodes of one kind in each run: by slot against its node, and of the nodes."""
    slopes = {reading: _slope(pasts, reading) for reading in _READINGS}
    alike: dict[tuple[str, int, int], list[tuple[Mapping[str, float], float, float]]] = {}
    for past in pasts:
        for sight in past.sights:
            for reading, slope in slopes.items():
                if readings := _read(sight, reading, slope):
                    middle = median(readings.values())
                    own = readings, middle, middle - slope * _watts(sight)
                    alike.setdefault((reading, sight.run, _load(sight)), []).append(own)
    found = {}
    for (reading, run, load), nodes in alike.items():
        found[reading, run, _NODE, load] = Usual(median(cooler for _, _, cooler in nodes), len(nodes))
        for slot in {slot for readings, _, _ in nodes for slot in readings}:
            above = [readings[slot] - middle for readings, middle, _ in nodes if slot in readings]
            found[reading, run, slot, load] = Usual(median(above), len(above))
    noise = {reading: _noise(pasts, reading, slope, found) for reading, slope in slopes.items()}
    return UsualByRun(found, slopes, noise)


def _noise(
    pasts: Iterable[NodePast], reading: str, slope: float, usual_by_slot: Mapping[tuple[str, int, str, int], Usual]
) -> float:
    """Return the standard deviation of what differs from one of the latest runs to the next, over all GPUs; robust."""
    changes: list[float] = []
    for past in pasts:
        before: dict[str, float] = {}
        for sight in past.sights[-NEEDED_RUNS:]:
            if readings := _read(sight, reading, slope):
                middle, load = median(readings.values()), _load(sight)
                above = {s: v - middle - usual_by_slot[reading, sight.run, s, load].value for s, v in readings.items()}
                changes += [value - before[slot] for slot, value in above.items() if slot in before]
                before |= above
    return robust_spread(changes)[1] / math.sqrt(2) if changes else 0.0


def _slope(pasts: Iterable[NodePast], reading: str) -> float:
    """Return by how many degrees a GPU is hotter for each watt above the median of its node, over all runs."""
    both, square = 0.0, 0.0
    for past in pasts:
        for sight in past.sights:
            if _is_uneven(sight) and (readings := _read(sight, reading)):
                watts, middle = sight.by_gpu[_WATTS], _watts(sight)
                heat = median(readings.values())
                apart = [(readings[slot] - heat, watts[slot] - middle) for slot in readings.keys() & watts.keys()]
                both += sum(celsius * more for celsius, more in apart)
                square += sum(more * more for _, more in apart)
    return min(_STEEPEST, max(0.0, both / square)) if square else 0.0


def _read(sight: Sight, reading: str, slope: float = 0.0) -> Mapping[str, float]:
    """Return a reading of each GPU, less what it is hotter for its power; nothing if only some of them are busy."""
    readings = sight.by_gpu[reading]
    if sight.watts is None or not _is_uneven(sight):
        return readings
    lowest, middle, highest = sight.watts
    if lowest < _UNEVEN * highest:
        return {}
    watts = sight.by_gpu[_WATTS] if slope else {}
    return {slot: value - slope * (watts.get(slot, middle) - middle) for slot, value in readings.items()}


def _is_uneven(sight: Sight) -> bool:
    return sight.watts is not None and sight.watts[2] - sight.watts[0] > _UNEVEN_WATTS


def _load(sight: Sight) -> int:
    """Return the class of load in which nodes are compared; watts are the load, and without them there is one."""
    return round(math.log(max(1.0, _watts(sight))) / _STEP)


def _watts(sight: Sight) -> float:
    return sight.watts[1] if sight.watts else 0.0


def drifting(record: Record) -> Iterator[Finding | NotApplicable]:
    """Yield each GPU, and the node, that has become hotter than its own past and than its like."""
    past = record.past
    longest = 0 if past.why else max(len(_comparable(past, reading)) for reading in _READINGS)
    if past.why or longest < NEEDED_RUNS:
        yield NotApplicable(past.why or too_few(longest, NEEDED_RUNS) + " in which no GPU idled beside busy ones")
        return
    for reading in _READINGS:
        for slot in (_NODE, *past.now.by_gpu[reading]):
            has_like = _like(record, past.now, reading, slot).nodes >= LEAST_PEERS
            now = _deviation(record, past.now, reading, slot, has_like=has_like)
            noise = record.usual.noise.get(reading, 0.0)
            least = LEAST_DEVIATION_OF_NODES_CELSIUS if slot == _NODE else max(LEAST_DEVIATION_CELSIUS, noise)
            if now is None or now.celsius < _least_shift(least):
                continue  # whatever it was before; nearly all end here
            every = (_deviation(record, sight, reading, slot, has_like=has_like) for sight in past.sights)
            own = [each for each in every if each is not None]
            if (shift := _shift(own, least)) is not None:
                yield _finding(reading, slot, own, shift)


def _comparable(past: NodePast, reading: str) -> list[Sight]:
    return [sight for sight in past.sights if _read(sight, reading)]


def _like(record: Record, sight: Sight, reading: str, slot: str) -> Usual:
    return record.usual.by_slot.get((reading, sight.run, slot, _load(sight)), Usual(0.0, 0))


def _deviation(record: Record, sight: Sight, reading: str, slot: str, *, has_like: bool) -> Deviation | None:
    """Return how much a GPU that is still in its slot, or the node, deviated; None if that run cannot be compared.

    A node is compared with like nodes; a GPU if it ``has_like`` now, and then in all runs alike: what is usual in its
    slot may be ten degrees.
    """
    slope = record.usual.slopes.get(reading, 0.0)
    readings, like = _read(sight, reading, slope), _like(record, sight, reading, slot)
    if not readings or ((has_like or slot == _NODE) and like.nodes < LEAST_PEERS):
        return None
    middle, watts = median(readings.values()), _watts(sight)
    if slot == _NODE:
        return Deviation(sight.run, watts, middle - slope * watts - like.value, middle)
    is_there = slot in readings and sight.serials.get(slot, "") == record.past.now.serials.get(slot, "")
    if not is_there or len(readings) < FEWEST_GPUS:
        return None
    above = readings[slot] - middle - (like.value if has_like else 0.0)
    return Deviation(sight.run, watts, above, sight.by_gpu[reading][slot])


def _least_shift(deviation: float) -> float:
    return max(LEAST_SHIFT_CELSIUS, LEAST_SHIFT_DEVIATIONS * deviation)


def _shift(own: Sequence[Deviation], least_deviation: float) -> float | None:
    """Return by how many degrees the recent values are above the older ones; None if that may be chance."""
    old, recent = own[:-RECENT], own[-RECENT:]
    total, shifts, widest = 0.0, [], least_deviation
    for each in recent:
        like = [value.celsius for value in old if _is_alike(value.watts, each.watts)]
        if len(like) < REFERENCE:
            continue
        middle, deviation = robust_spread(like)
        deviation = max(least_deviation, deviation)
        widest = max(widest, deviation)
        shifts.append(each.celsius - middle)
        score = max(-LARGEST_SCORE, min(LARGEST_SCORE, shifts[-1] / deviation))
        total = max(0.0, total + score - SLACK)
    if len(shifts) < LATEST or total <= LIMIT:
        return None
    shift = median(shifts[-LATEST:])
    return shift if min(shift, shifts[-1], recent[-1].celsius) >= _least_shift(widest) else None


def _is_alike(one: float, other: float) -> bool:
    return max(one, other) <= _ALIKE_LOAD * max(1.0, min(one, other))


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
