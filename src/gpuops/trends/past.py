"""What the store knows of one node's past, as the value of a probe that is never sent to a node."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from statistics import median
from typing import NamedTuple

from gpuops.errors import format_count
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

COUNTERS = "counters-over-time"
OWN_CHECKS = frozenset({COUNTERS, "drift", "lemon"})
"""The checks of this package; what they found is not counted as a failure."""
READINGS = ("temperature_celsius", "memory_temperature_celsius", "power_draw_watts")
"""The readings of GPUs that `gpuops.trends.drift` judges, and what tells their load."""
LEAST_SECONDS = 3600.0
"""Runs that are closer together are one for counters; a choice."""


@dataclass(frozen=True)
class Sight:
    """One node in one run: its figures, the boot in which its counters began, and the serial number in each slot.

    ``run`` is the order of runs, which a step of the clock does not change; ``at`` has a time zone.
    """

    run: int
    at: dt.datetime
    boot: str
    figures: Mapping[str, float]
    serials: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_gpu(self) -> Mapping[str, Mapping[str, float]]:
        """The readings of GPUs, by reading and slot."""
        found: dict[str, dict[str, float]] = {reading: {} for reading in READINGS}
        for figure, slot, reading in _readings_of_gpus(tuple(self.figures)):
            found[reading][slot] = self.figures[figure]
        return found

    @cached_property
    def watts(self) -> tuple[float, float, float] | None:
        """The lowest, the median and the highest power of a GPU; None if unknown."""
        watts = self.by_gpu[READINGS[-1]].values()
        return (min(watts), median(watts), max(watts)) if watts else None


@lru_cache(maxsize=1024)
def _readings_of_gpus(figures: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    """Return figure, slot and reading of each reading of a GPU; nearly all runs of a fleet have the same figures."""
    parted = ((figure, *figure.split(".", 1)) for figure in figures if figure.startswith("gpu"))
    return tuple(each for each in parted if len(each) == 3 and each[2] in READINGS)


@dataclass(frozen=True)
class Failure:
    """A failure from its first sight ``at`` until ``until``, in a slot with the part of this ``serial``, if known."""

    at: dt.datetime
    until: dt.datetime
    check: str
    slot: str
    serial: str = ""
    node: str = ""


@dataclass(frozen=True)
class Watch:
    """How often something failed (``failures``) in the ``days`` in which it was watched."""

    failures: int
    days: float


@dataclass(frozen=True)
class NodePast:
    """One node now, and what the store knows of it; if that was not asked for, ``why``.

    ``before`` are its earlier runs, the oldest first. ``elsewhere`` are the runs that saw a part, by serial
    number, before it came to this slot, each with the slot that it was in then. ``failures`` are those of the
    node, ``part_failures`` those of its parts by serial number, in any node. ``fleet`` and ``fleet_parts`` are the
    failures of all others. ``gpus_before`` is the highest number of GPUs that a run saw in this machine.
    ``open_counters`` are slot and code of what `gpuops.trends.counters` found, and was there in the last run.
    """

    node: str
    now: Sight
    before: tuple[Sight, ...] = ()
    elsewhere: Mapping[str, tuple[tuple[str, Sight], ...]] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    watched_days: float = 0.0
    part_failures: Mapping[str, tuple[Failure, ...]] = field(default_factory=dict)
    part_days: Mapping[str, float] = field(default_factory=dict)
    fleet: Watch = Watch(0, 0.0)
    fleet_parts: Watch = Watch(0, 0.0)
    why: str = ""
    gpus_before: int = 0
    open_counters: frozenset[tuple[str, str]] = frozenset()

    @property
    def sights(self) -> tuple[Sight, ...]:
        """All runs, the present one last."""
        return (*self.before, self.now)

    @cached_property
    def apart(self) -> list[Sight]:
        """The runs at least `LEAST_SECONDS` apart, the present one last."""
        return spaced(self.sights, LEAST_SECONDS)


class Tally(NamedTuple):
    """How often counters of one name rose: ``rises`` in ``intervals`` between runs, over all ``parts`` of a group.

    ``climbers`` are the parts whose counter rose: for each, the rises in its last intervals, by their number.
    """

    intervals: int
    rises: int
    parts: int = 0
    climbers: tuple[Mapping[int, int], ...] = ()


class Usual(NamedTuple):
    """The median of a reading over the ``nodes`` of a group that showed it in one run."""

    value: float
    nodes: int


class UsualByRun(NamedTuple):
    """What is usual ``by_slot``: by reading, run, slot (``node`` for the node itself) and class of load.

    ``slopes`` are by how many degrees a GPU is hotter for each watt, by reading; ``noise`` is the standard deviation of
    what a GPU differs from its like from one run to the next, in degrees; see `gpuops.trends.drift`.
    """

    by_slot: Mapping[tuple[str, int, str, int], Usual] = {}
    slopes: Mapping[str, float] = {}
    noise: Mapping[str, float] = {}


@dataclass(frozen=True)
class Record:
    """A node and what is usual in its group of like nodes: ``tallies`` by the name of a counter, and ``usual``."""

    past: NodePast
    tallies: Mapping[str, Tally] = field(default_factory=dict, repr=False)
    usual: UsualByRun = field(default_factory=UsualByRun, repr=False)


def parse_past(answer: Completed) -> Record | Unknown:
    """Return that saved answers have no past: it is in the store of the project that asked."""
    return Unknown(f"{answer.node}: the past of a node is not saved with its answers")


QUESTION = Command(("gpuops", "history"))
"""The question that the store answers; it is never sent to a node."""
past: Probe[Record] = Probe("past", QUESTION, parse_past, accepts=None, cost="recalled")
"""The runs of a node in the project's store."""


def spaced(sights: Sequence[Sight], seconds: float) -> list[Sight]:
    """Return the latest sight, and earlier ones at least ``seconds`` apart, the oldest first.

    Of two runs in quick succession the later says nothing that is independent of the first. After a step of the clock
    backwards the order of runs counts.
    """
    kept: list[Sight] = []
    for sight in reversed(sights):
        if not kept or abs((kept[-1].at - sight.at).total_seconds()) >= seconds:
            kept.append(sight)
    return kept[::-1]


def too_few(runs: int, needed: int) -> str:
    """Return why a node cannot be judged yet."""
    return f"{format_count(runs, 'run')} in the store, needs {needed}"
