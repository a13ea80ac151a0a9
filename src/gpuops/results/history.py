"""What the store knows about the past: two runs compared, one node, one part, one link, and all nodes together."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from gpuops.store import HostEvent
from gpuops.store.records import (
    FLEET,
    JUDGED,
    SHARED,
    Changes,
    KeptFinding,
    KeptLink,
    KeptPart,
    KeptRun,
    KeptVisit,
    LastResult,
    Rename,
    Visit,
    sort_changes,
)

FAILING = "fail"
Points = Sequence[tuple[dt.datetime, float]]
"""A figure over time."""
READINGS = (
    *("temperature_celsius", "memory_temperature_celsius", "power_draw_watts", "graphics_mhz"),
    *("memory_total_mib", "memory_used_mib"),
)
"""Figures of a GPU that are no counters."""
_OTHER_READINGS = ("used_percent", "gb_per_s")
_DAY = 86400.0
_Z = 1.959964
"""Standard normal quantile of a two-sided interval of 95 percent."""


@dataclass(frozen=True)
class RunDetails:
    """One run, with what it saw of each node, and its findings as they are now."""

    run: KeptRun
    visits: Mapping[str, Visit]
    findings: tuple[KeptFinding, ...]


@dataclass(frozen=True)
class RunDiff:
    """Two runs compared: their findings, the nodes whose status differs, and the parts that came to another slot.

    ``only_before`` and ``only_after`` are nodes that only one of them visited. ``checks_before`` and ``checks_after``
    are checks that only one of them has for a node that both judged; they count for no status. ``swapped`` is true if
    the later run was named first.
    """

    before: KeptRun
    after: KeptRun
    changes: Changes
    statuses: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    moved: tuple[KeptPart, ...] = ()
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    checks_before: tuple[str, ...] = ()
    checks_after: tuple[str, ...] = ()
    swapped: bool = False


def compare(
    before: KeptRun,
    after: KeptRun,
    visits: tuple[Mapping[str, KeptVisit], Mapping[str, KeptVisit]],
    findings: Sequence[KeptFinding],
    last_result: LastResult,
    moved: Iterable[KeptPart] = (),
    renames: Iterable[Rename] = (),
) -> RunDiff:
    """Compare what two runs saw; ``findings`` are those of the time between them, ``last_result`` is the store's."""
    old, new = visits
    both = [node for node in new if node in old and node != FLEET]
    seen = {number for visit in new.values() for number in visit.findings}
    was, now = ({node: visits[node].visit for node in both} for visits in (old, new))
    found = sort_changes(findings, dict.fromkeys(both, before.number), after.number, seen, now, last_result)
    asked = {check for visit in (*was.values(), *now.values()) for check in visit.checks}
    found["unseen"] = tuple(finding for finding in found["unseen"] if finding.key.check in asked)
    judged = [(was[node].checks, now[node].checks) for node in both if {was[node].status, now[node].status} <= JUDGED]
    statuses = {node: _statuses(was[node], now[node]) for node in both}
    return RunDiff(
        before,
        after,
        Changes(before, **found, no_longer_assessed=(), renamed={each.node: each.former for each in renames}),
        {node: pair for node, pair in statuses.items() if pair[0] != pair[1]},
        tuple(part for part in moved if part.node in both),
        tuple(node for node in old if node not in new and node != FLEET),
        tuple(node for node in new if node not in old and node != FLEET),
        tuple(sorted({check for a, b in judged for check in a.keys() - b.keys()})),
        tuple(sorted({check for a, b in judged for check in b.keys() - a.keys()})),
    )


def _statuses(was: Visit, now: Visit) -> tuple[str, str]:
    """Return the statuses of a node in two runs; if they did not have the same checks, by the checks of both."""
    if was.checks.keys() == now.checks.keys() or not {was.status, now.status} <= JUDGED:
        return was.status, now.status
    both = was.checks.keys() & now.checks.keys()
    before, after = ({visit.checks[name].rpartition(SHARED)[2] for name in both} for visit in (was, now))
    return _worst(before), _worst(after)


def _worst(results: Collection[str]) -> str:
    return next((status for status in ("fail", "warn") if status in results), "pass")


@dataclass(frozen=True)
class FailureRecord:
    """Failures of one node, part or kind of part: each from its first sight until it was gone.

    ``days`` is how long it was watched, over all parts of a kind. ``intervals_days`` are the times between the starts
    of two failures; ``kind`` is that of a model's parts.
    """

    name: str
    failures: int
    days: float
    intervals_days: tuple[float, ...] = ()
    latest: str = ""
    kind: str = ""

    @property
    def median_days(self) -> float | None:
        """The median time between two failures; None if there were fewer than two."""
        return median(self.intervals_days) if self.intervals_days else None

    @property
    def per_1000_days(self) -> tuple[float, float, float] | None:
        """Failures in 1,000 days, with the bounds of a 95 percent interval; None if watched for less than a day."""
        if self.days < 1:
            return None
        low, high = poisson_interval(self.failures)
        return self.failures / self.days * 1000, low / self.days * 1000, high / self.days * 1000


def poisson_interval(count: int) -> tuple[float, float]:
    """Return the 95 percent interval of the mean of which ``count`` events were seen.

    Byar's approximation of the exact interval, within 1 percent from 1 event on; for none, the upper bound is exact:
    -ln 0.025. Source: Breslow and Day, Statistical Methods in Cancer Research II, 1987, section 2.3.
    """

    def cube(n: int, sign: int) -> float:
        return n * (1 - 1 / (9 * n) + sign * _Z / (3 * math.sqrt(n))) ** 3

    return (cube(count, -1) if count else 0.0, cube(count + 1, 1) if count else -math.log(0.025))


def offenders(findings: Iterable[KeptFinding], watched_days: Mapping[str, float]) -> list[FailureRecord]:
    """Return the failures of each node that was watched, the most frequent offender first."""
    by_node: dict[str, list[KeptFinding]] = {node: [] for node in watched_days}
    for finding in findings:
        if finding.status == FAILING and finding.key.node in by_node:
            by_node[finding.key.node].append(finding)
    records = [_failures(node, found, watched_days[node]) for node, found in by_node.items()]
    return sorted(records, key=lambda record: (-record.failures, record.name))


def part_failures(findings: Iterable[KeptFinding], parts: Sequence[KeptPart]) -> list[FailureRecord]:
    """Return the failures of each part with a serial number, in whatever node and slot it was then."""
    return sorted(
        (
            _failures(f"{kind} {serial}", found, days)
            for (kind, serial), (found, days) in _by_part(findings, parts).items()
        ),
        key=lambda record: (-record.failures, record.name),
    )


def model_failures(findings: Iterable[KeptFinding], parts: Sequence[KeptPart]) -> list[FailureRecord]:
    """Return the failures of all parts of each model, and how many days these were watched together."""
    models = {(part.kind, part.serial): part.model or part.kind for part in parts}
    found: dict[str, list[KeptFinding]] = {}
    days: dict[str, float] = {}
    kinds = {model: kind for (kind, _), model in models.items()}
    for key, (own, watched) in _by_part(findings, parts).items():
        found.setdefault(models[key], []).extend(own)
        days[models[key]] = days.get(models[key], 0.0) + watched
    records = (replace(_failures(model, own, days[model]), kind=kinds[model]) for model, own in found.items())
    return sorted(records, key=lambda record: (-record.failures, record.name))


def _by_part(
    findings: Iterable[KeptFinding], parts: Sequence[KeptPart]
) -> dict[tuple[str, str], tuple[list[KeptFinding], float]]:
    slots: dict[tuple[str, str], list[KeptPart]] = {}
    by_part: dict[tuple[str, str], tuple[list[KeptFinding], float]] = {}
    for part in parts:
        slots.setdefault((part.node, part.slot), []).append(part)
        found, days = by_part.get((part.kind, part.serial), ([], 0.0))
        by_part[part.kind, part.serial] = (found, days + _days(part.first_at, part.last_at))
    for finding in findings:
        if finding.status == FAILING:
            failed = part_that_failed(finding, slots.get((finding.key.node, finding.key.part), ()))
            if failed:
                by_part[failed.kind, failed.serial][0].append(finding)
    return by_part


def part_that_failed(finding: KeptFinding, in_slot: Sequence[KeptPart]) -> KeptPart | None:
    """Return which of the parts that were in the slot of a finding was there when it began; None if none was yet."""
    return next((part for part in reversed(in_slot) if part.first_run <= finding.first_run), None)


def _failures(name: str, findings: Sequence[KeptFinding], days: float) -> FailureRecord:
    starts = sorted(finding.first_at for finding in findings)
    gaps = tuple(_days(a, b) for a, b in itertools.pairwise(starts))
    latest = max(findings, key=lambda finding: finding.first_at, default=None)
    return FailureRecord(name, len(findings), days, gaps, latest.key.check if latest else "")


def _days(a: dt.datetime, b: dt.datetime) -> float:
    return (b - a).total_seconds() / _DAY


@dataclass(frozen=True)
class FleetHistory:
    """Failures of all nodes, of parts that failed, and of models, over ``runs`` runs.

    ``never_reached`` are the nodes that answered in none of them.
    """

    runs: int
    nodes: tuple[FailureRecord, ...]
    parts: tuple[FailureRecord, ...]
    models: tuple[FailureRecord, ...]
    never_reached: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeHistory:
    """All that the store knows of a node: its findings, its parts, its visits, the oldest first, and former names."""

    node: str
    findings: tuple[KeptFinding, ...]
    parts: tuple[KeptPart, ...]
    visits: tuple[KeptVisit, ...]
    renames: tuple[Rename, ...] = ()


@dataclass(frozen=True)
class PartHistory:
    """The slots that a part was in, and the findings on it there."""

    serial: str
    slots: tuple[KeptPart, ...]
    findings: tuple[KeptFinding, ...]
    figures: Mapping[str, Points] = field(default_factory=dict)


@dataclass(frozen=True)
class LinkHistory:
    """What was measured between two nodes, the oldest first."""

    a: str
    b: str
    measured: tuple[KeptLink, ...]


@dataclass(frozen=True)
class KeptFix:
    """A run of the fix of ``check``, and the status of the node after it."""

    run: int
    at: dt.datetime
    who: str
    check: str
    status: str
    why: str = ""


@dataclass(frozen=True)
class Explanation:
    """What the store knows of a node now: its latest ``event`` and visit, findings that are open and that are gone.

    ``part_failures`` are the parts in it that failed, with the number of their failures in any node. ``tried`` are the
    changes of its state, ``fixes`` the fixes of it, and ``renames`` the changes of its name.
    """

    node: str
    event: HostEvent | None
    latest: KeptVisit | None
    standing: tuple[KeptFinding, ...]
    gone: tuple[KeptFinding, ...]
    parts: tuple[KeptPart, ...]
    part_failures: tuple[tuple[KeptPart, int], ...] = ()
    tried: tuple[HostEvent, ...] = ()
    fixes: tuple[KeptFix, ...] = ()
    renames: tuple[Rename, ...] = ()


History = FleetHistory | NodeHistory | PartHistory | LinkHistory


def series(visits: Iterable[KeptVisit], prefix: str = "") -> dict[str, list[tuple[dt.datetime, float]]]:
    """Return each figure whose name begins with ``prefix`` over time."""
    found: dict[str, list[tuple[dt.datetime, float]]] = {}
    for visit in visits:
        for name, value in visit.visit.figures.items():
            if name.startswith(prefix):
                found.setdefault(name, []).append((visit.at, value))
    return found


def is_counter(name: str) -> bool:
    """Return whether a figure counts events; any other is a reading, which may fall."""
    return not name.endswith((*READINGS, *_OTHER_READINGS))
