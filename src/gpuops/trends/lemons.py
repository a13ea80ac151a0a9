"""Lemons: nodes and parts that fail more often than chance allows in a fleet where all are alike; pure.

The failures of a healthy node are a Poisson process with the fleet's rate. A node is named if so many failures as it
has had, or more, would befall at most `FALSE_ALARMS` of healthy ones.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence

from gpuops.errors import format_count
from gpuops.judging.finding import Finding, NotApplicable
from gpuops.trends.chance import poisson_tail
from gpuops.trends.past import Failure, Record, Watch

WINDOW_DAYS = 30.0
"""Failures that are longer ago do not count: repairs hold, or the next failure comes soon. Of 14, 30, 60, 90 and 180
days the one that predicted most in the first half of the trace of bench/lemons.py; the second half tested it."""
FALSE_ALARMS = 0.01
"""The budget: of healthy nodes, one in 100 is named by chance at any one time."""
FALSE_ALARMS_OF_PARTS = 0.001
"""Of healthy parts, one in 1,000: a node has about ten."""
FEWEST = 2
"""One failure makes no lemon, however rare failures are."""
LEAST_DAYS = 14.0
"""Of a node in the store, before it is judged; a choice."""
APART_DAYS = 1.0
"""Failures that begin within a day of the end of the one before belong to it: a repair that did not hold."""
USUAL_PER_DAY = 4.2e-3
"""Failures of a node, until the fleet's own are known: 584 in 139,200 node-days (stepfun-ai/InfiniteHBD-Trace)."""
USUAL_PART_PER_DAY = 2.7e-4
"""Of a GPU, HCA or drive: half of these are hardware, over about eight parts a node."""
WEIGHT_DAYS = 1000.0
"""The days that the usual rate counts for beside those of the fleet; a choice."""
_DAY = 86400.0


def episodes(failures: Iterable[Failure]) -> list[Failure]:
    """Return the failures that began at least `APART_DAYS` after all before had ended, the oldest first."""
    found: list[Failure] = []
    end: dt.datetime | None = None
    for failure in sorted(failures, key=lambda each: each.at):
        if end is None or (failure.at - end).total_seconds() >= APART_DAYS * _DAY:
            found.append(failure)
        end = max(end or failure.until, failure.until)
    return found


def rate_per_day(watch: Watch, usual: float) -> float:
    """Return failures in a day: the fleet's, and the usual rate for `WEIGHT_DAYS`."""
    return (watch.failures + usual * WEIGHT_DAYS) / (watch.days + WEIGHT_DAYS)


def chance(failures: int, days: float, per_day: float) -> float:
    """Return the probability that a healthy node or part fails so often in so many days."""
    return poisson_tail(failures, per_day * days)


def lemons(record: Record) -> Iterator[Finding | NotApplicable]:
    """Yield the node, and each of its parts, that has failed more often than the fleet's rate explains."""
    past = record.past
    if past.why or past.watched_days < LEAST_DAYS:
        yield NotApplicable(past.why or f"{past.watched_days:.0f} days in the store, needs {LEAST_DAYS:.0f}")
        return
    parts = {serial: slot for slot, serial in past.now.serials.items()}
    named: set[str] = set()
    for serial, failures in past.part_failures.items():
        days = min(WINDOW_DAYS, max(past.part_days.get(serial, 0.0), LEAST_DAYS))
        rate = rate_per_day(past.fleet_parts, USUAL_PART_PER_DAY)
        own = _recent(failures, past.now.at)
        if serial in parts and _is_lemon(own, days, rate, FALSE_ALARMS_OF_PARTS):
            named.add(serial)
            yield _finding(own, days, rate, parts[serial], past.node)
    rest = _recent([failure for failure in past.failures if failure.serial not in named], past.now.at)
    days, rate = min(WINDOW_DAYS, past.watched_days), rate_per_day(past.fleet, USUAL_PER_DAY)
    if _is_lemon(rest, days, rate, FALSE_ALARMS):
        yield _finding(rest, days, rate, "node", past.node)


def _recent(failures: Iterable[Failure], now: dt.datetime) -> list[Failure]:
    oldest = now - dt.timedelta(days=WINDOW_DAYS)
    return [failure for failure in episodes(failures) if failure.at >= oldest]


def _is_lemon(failures: Sequence[Failure], days: float, per_day: float, budget: float) -> bool:
    return len(failures) >= FEWEST and chance(len(failures), days, per_day) <= budget


def _finding(failures: Sequence[Failure], days: float, per_day: float, part: str, node: str) -> Finding:
    expected = per_day * days
    checks = ", ".join(dict.fromkeys(failure.check for failure in failures))
    elsewhere = sorted({failure.node for failure in failures} - {node, ""})
    where = f", also in {', '.join(elsewhere)}" if elsewhere else ""
    message = (
        f"{format_count(len(failures), 'failure')} in {days:.0f} days ({checks}){where}; "
        f"{expected:.2g} expected of a healthy {'node' if part == 'node' else 'part'}"
    )
    return Finding(
        message,
        expected=round(expected, 3),
        found=len(failures),
        unit="failures",
        part=part,
        code="node" if part == "node" else "part",
    )
