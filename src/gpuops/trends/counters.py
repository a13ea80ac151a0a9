"""Counters by what they rose between two runs, apart from resets, wraps, reboots and parts that moved; pure.

A counter is judged by how many of the last runs saw it rise, not by how much: errors come in bursts, and one burst is
one incident. The chance that a healthy part's counter rises between two runs is estimated from all other parts of the
same kind, so what is usual in a fleet blames no part of it. If several similar parts rose as often, the cause is not in
one of them: new firmware on half of the nodes, for example.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gpuops.judging.finding import Finding, NotApplicable
from gpuops.probing import Unknown
from gpuops.reasons import Severity
from gpuops.trends.chance import FALSE_ALARMS_PER_NODE_MONTH, RUNS_PER_MONTH, binomial_tail
from gpuops.trends.past import NodePast, Record, Sight, Tally, too_few

Kind = Literal["rise", "none", "restart", "other-part"]
WINDOWS = (4, 6, 10, 20, 40)
"""The numbers of last intervals that are tested; three say too little: 0.005³ is above `LARGEST_CHANCE`."""
LEAST_CHANCE = 0.005
"""Even if no other part's counter rose: one run in 200; a choice. What a part remembers (remapped rows, retired pages)
is no noise of a line but a repair of that part: there the runs of other parts decide, and 200 count beside them."""
COUNTERS_PER_NODE = 120
"""Counters of 8 GPUs, 8 HCAs, drives and DIMMs that have a rule."""
LARGEST_CHANCE = FALSE_ALARMS_PER_NODE_MONTH / (COUNTERS_PER_NODE * RUNS_PER_MONTH * len(WINDOWS))
"""1.1e-7 for each test: the budget of a node-month over all its counters, runs and windows (Bonferroni)."""
FEWEST_RISES = 3
"""Two may be one incident with an echo, however rare they are; a choice."""
_QUIET, _REST_CHANCE, _LONGEST_REST = 4, 0.05, 20
"""A finding ends once its counter stood still in so many intervals, or in so many that a part which goes on as it did
rests so long in 1 of 20 cases: errors come in bursts, with rests between them. Choices."""
ALIKE_PARTS, ALIKE_FRACTION = 3, 0.02
"""So many other like parts, and more than this fraction of them, that rose as often are a common cause; a choice.

The chance that a healthy part looks like this is then at least that fraction, far above `LARGEST_CHANCE`.
"""
COMMON_FRACTION = 0.05
"""More parts than this have a cause that is worth a word; of fewer, some are busier than others by nature; a choice."""
_HOUR = 3600.0


@dataclass(frozen=True)
class CounterRule:
    """How a counter is judged. ``belongs_to`` is ``part`` if the part remembers it over a reboot and in another node.

    More than ``most`` in one interval, and more than ``per_hour``, are a finding at once; None: only repetition is.
    ``limit`` is where it wraps.
    """

    what: str
    code: str
    fix: str
    belongs_to: Literal["boot", "part"] = "boot"
    severity: Severity = "warn"
    most: int | None = None
    per_hour: float = 0.0
    limit: int = 2**64


_CARD = (
    "drain the node at the next occasion and run the field diagnostics; if they fail, or it goes on, return the card"
)
_NVLINK = "reset the GPU; if the link goes on, reseat the GPU, or replace the cable, tray or baseboard"
_CABLE = "clean and reseat the cable at both ends; if it goes on, swap it with a neighbour's and see what it follows"
_DRIVE = "replace the drive at the next maintenance"
_RETRAINS = CounterRule("NVLink recoveries", "nvlink-recovery", _NVLINK, most=10)
"""Ten: one link of 5,760 counted 505 in the days before it failed, all others none (marin-community/marin, 9086)."""
_SYMBOLS = CounterRule("symbol errors", "symbol-errors", _CABLE, most=120, per_hour=120)
"""120 an hour: NVIDIA NVSentinel, docs/configuration/nic-health-monitor.md."""
RULES: Mapping[str, CounterRule] = {
    "total_link_recovery_events": _RETRAINS,
    "recovery_errors": _RETRAINS,
    "link_recovery_failed_events": CounterRule(
        "failed NVLink recoveries", "nvlink-failed", _NVLINK, severity="reset", most=0
    ),
    "replay_errors": CounterRule("NVLink replays", "nvlink-replay", _NVLINK),
    "crc_errors": CounterRule("NVLink CRC errors", "nvlink-crc", _NVLINK),
    "symbol_errors": CounterRule("NVLink symbol errors", "nvlink-symbols", _NVLINK),
    "ecc_corrected_volatile": CounterRule("corrected memory errors", "ecc-corrected", _CARD),
    "ecc_uncorrected_aggregate": CounterRule("uncorrected memory errors", "ecc-uncorrected", _CARD, "part"),
    "rows_remapped_corrected": CounterRule("rows remapped for corrected errors", "rows-corrected", _CARD, "part"),
    "rows_remapped_uncorrected": CounterRule("rows remapped for uncorrected errors", "rows-uncorrected", _CARD, "part"),
    "retired_pages_single_bit": CounterRule("pages retired for corrected errors", "pages-corrected", _CARD, "part"),
    "retired_pages_double_bit": CounterRule("pages retired for uncorrected errors", "pages-uncorrected", _CARD, "part"),
    "pcie_replays": CounterRule("PCIe replays", "pcie-replay", "reseat the card and its riser", limit=2**32),
    "symbol_error": _SYMBOLS,
    "link_error_recovery": CounterRule("link recoveries", "link-recovery", _CABLE),
    "link_downed": CounterRule("link failures", "link-downed", _CABLE, most=9),
    "port_rcv_errors": CounterRule("receive errors", "receive-errors", _CABLE),
    "local_link_integrity_errors": CounterRule("link integrity errors", "link-integrity", _CABLE),
    "media_errors": CounterRule("media errors", "media-errors", _DRIVE, "part"),
    "corrected_errors": CounterRule(
        "corrected memory errors", "dimm-corrected", "replace the DIMM at the next maintenance"
    ),
}
"""By the last word of a figure's name. Lost and repeated packets are missing: healthy ports count them."""


class CounterStep(NamedTuple):
    """What a counter did between two runs: ``rise`` is what it counted; the other kinds say why that is unknown."""

    kind: Kind
    rise: int
    seconds: float
    until: dt.datetime


def step(rule: CounterRule, before: tuple[Sight, float, str], after: tuple[Sight, float, str]) -> CounterStep:
    """Return what happened between two values, each with its sight and the serial number of the part.

    A counter that a boot begins says nothing across a boot. One that fell was reset, unless it was in the last quarter
    below its limit and is in the first now: then it wrapped.
    """
    (old, was, old_serial), (new, value, new_serial) = before, after
    seconds = (new.at - old.at).total_seconds()
    if old_serial and new_serial and old_serial != new_serial:
        return CounterStep("other-part", 0, seconds, new.at)
    if rule.belongs_to == "boot" and (not new.boot or old.boot != new.boot):
        return CounterStep("restart", 0, seconds, new.at)
    if value < was:
        wrapped = rule.belongs_to == "boot" and was >= 0.75 * rule.limit and value < 0.25 * rule.limit
        return (
            CounterStep("rise", round(value + rule.limit - was), seconds, new.at) if wrapped else _restart(new, seconds)
        )
    return CounterStep("rise" if value > was else "none", round(value - was), seconds, new.at)


def _restart(new: Sight, seconds: float) -> CounterStep:
    return CounterStep("restart", 0, seconds, new.at)


def steps(past: NodePast, slot: str, name: str) -> list[CounterStep]:
    """Return what a counter of the part that is now in ``slot`` did, run by run, the latest last.

    A counter that the part remembers goes on from the slot or node that it was in before.
    """
    rule, figure = RULES[name.rpartition(".")[2]], f"{slot}.{name}"
    serial = past.now.serials.get(slot, "")
    sights = [s for s in past.apart if figure in s.figures]
    points = [(s, s.figures[figure], s.serials.get(slot, "")) for s in sights]
    if rule.belongs_to == "part" and serial in past.elsewhere:
        before = [(s, s.figures.get(f"{old}.{name}"), serial) for old, s in past.elsewhere[serial]]
        here = [point for point in points if point[2] == serial]
        points = [*((s, value, own) for s, value, own in before if value is not None), *here]
    return [step(rule, a, b) for a, b in itertools.pairwise(points)]


def tallies(pasts: Iterable[NodePast]) -> dict[str, Tally]:
    """Return how often the counters of each name rose, and those of each slot, over all nodes of one kind."""
    sums: dict[str, list[int]] = {}
    climbers: dict[str, list[Mapping[int, int]]] = {}
    for past in pasts:
        moved = _moved(past)
        for slot, name in _counters(past):
            intervals, rises, lately = len(past.apart) - 1, 0, {}
            if (slot, name) in moved:
                own = _known(steps(past, slot, name))
                intervals, rises = len(own), _rises(own)
                lately = {window: _rises(own[-window:]) for window in WINDOWS}
            for key in (name, f"{slot}.{name}"):
                counts = sums.setdefault(key, [0, 0, 0])
                sums[key] = [a + b for a, b in zip(counts, (intervals, rises, 1), strict=True)]
                if rises:
                    climbers.setdefault(key, []).append(lately)
    return {
        name: Tally(intervals, rises, parts, tuple(climbers.get(name, ())))
        for name, (intervals, rises, parts) in sums.items()
    }


def _moved(past: NodePast) -> frozenset[tuple[str, str]]:
    """Return slot and name of the counters that were not always what they are now; most were."""
    counters = list(_counters(past))
    names = [f"{slot}.{name}" for slot, name in counters]
    *before, now = [tuple(map(sight.figures.get, names)) for sight in past.apart]
    rows = {row for row in before if row != now}
    return frozenset(own for row in rows for own, a, b in zip(counters, row, now, strict=True) if a != b)


def _known(every: Sequence[CounterStep]) -> list[CounterStep]:
    """Return the intervals of the part that is there now in which what its counter did is known."""
    first = max((number + 1 for number, each in enumerate(every) if each.kind == "other-part"), default=0)
    return [each for each in every[first:] if each.kind in ("rise", "none")]


def _goes_on(every: Sequence[CounterStep], rest: int) -> bool:
    """Return True if the counter rose in the last intervals and did not begin anew since, as with most repairs."""
    latest = itertools.takewhile(lambda each: each.kind in ("rise", "none"), reversed(every))
    return any(each.kind == "rise" for each in itertools.islice(latest, rest))


def _rest(own: Sequence[CounterStep]) -> int:
    """Return in how many intervals a counter stands still before what it did is over."""
    last = own[-WINDOWS[-1] :]
    if not FEWEST_RISES <= _rises(last) < len(last):
        return _QUIET
    longest = math.log(_REST_CHANCE) / math.log(1 - _rises(last) / len(last))
    return min(_LONGEST_REST, max(_QUIET, math.ceil(longest)))


def _of_the_past(own: Sequence[CounterStep]) -> float:
    """Return in which fraction of the intervals before the longest window the counter of this part rose.

    A part that always counted much is named once, not again and again; what builds up begins within the window.
    """
    before = own[: -WINDOWS[-1]]
    return min(0.5, _rises(before) / len(before)) if before else 0.0


def _rises(own: Sequence[CounterStep]) -> int:
    return sum(s.kind == "rise" for s in own)


def _counters(past: NodePast) -> Iterator[tuple[str, str]]:
    """Yield slot and name of each counter that is judged; the links of a GPU are judged by their sum."""
    for figure in past.now.figures:
        slot, _, name = figure.partition(".")
        if name in RULES:
            yield slot, name


def climbing(record: Record) -> Iterator[Finding | Unknown | NotApplicable]:
    """Yield the counters of a node that rose more often than by chance, or at once more than any healthy part's do."""
    past = record.past
    runs = len(past.apart)
    if past.why or runs < 2:
        yield NotApplicable(past.why or too_few(runs, 2))
        return
    if not any(True for _ in _counters(past)):
        had_some = any(figure.partition(".")[2] in RULES for sight in past.before for figure in sight.figures)
        why = "this run read no error counter"
        yield Unknown(why) if had_some else NotApplicable(why)
    alike: dict[str, Finding] = {}
    moved = _moved(past)
    for slot, name in filter(moved.__contains__, _counters(past)):
        rule, every = RULES[name], steps(past, slot, name)
        own = _known(every)
        if not _goes_on(every, _rest(own)):
            continue
        common = [record.tallies.get(key, Tally(0, 0)) for key in (name, f"{slot}.{name}")]
        chance = max(_of_the_past(own), _chance(rule, common, own))
        seen = _repetition(every, own, chance, was_found=(slot, rule.code) in past.open_counters)
        if others := _rose_alike(common[0], seen):
            if others > COMMON_FRACTION * (common[0].parts - 1):
                alike.setdefault(name, _common_cause(rule))
        elif seen := seen or _burst(rule, reversed(own[-_QUIET:])):
            yield _finding(rule, past, slot, name, seen, chance)
    yield from alike.values()


def _chance(rule: CounterRule, common: Sequence[Tally], own: Sequence[CounterStep]) -> float:
    """Return how likely a counter rises between two runs, from all other parts (the first tally) and from its slot."""
    others = [(max(0, tally.intervals - len(own)), tally.rises - _rises(own)) for tally in common]
    least = 1 / (others[0][0] + 1 / LEAST_CHANCE) if rule.belongs_to == "part" else LEAST_CHANCE
    return max(least, *(min(0.5, rises / intervals) if intervals else 0.0 for intervals, rises in others))


def _repetition(
    every: Sequence[CounterStep], own: Sequence[CounterStep], chance: float, *, was_found: bool
) -> Sequence[CounterStep]:
    """Return the last intervals in which the counter rose too often; once that was found, as long as it goes on."""
    seen = _excess(own, chance) if _goes_on(every, _QUIET) else ()
    last = own[-WINDOWS[-1] :]
    return last if not seen and was_found and _rises(last) >= FEWEST_RISES else seen


def _excess(own: Sequence[CounterStep], chance: float) -> Sequence[CounterStep]:
    """Return the shortest of the last intervals in which more rose than by chance; empty if none."""
    for window in WINDOWS:
        last = own[-window:]
        if _rises(last) >= FEWEST_RISES and binomial_tail(_rises(last), len(last), chance) <= LARGEST_CHANCE:
            return last
    return ()


def _rose_alike(tally: Tally, seen: Sequence[CounterStep]) -> int:
    """Return how many similar parts rise repeatedly, if several do so as often or nearly as often; 0 if not.

    What they do is one more chance by which each of them may be one of the busier.
    """
    if not seen:
        return 0
    window, own = next(window for window in WINDOWS if window >= len(seen)), _rises(seen)
    others = sorted(rises[window] for rises in tally.climbers if rises[window] >= FEWEST_RISES)
    if own in others:
        others.remove(own)  # one of them is this part
    if len(others) < ALIKE_PARTS or len(others) <= ALIKE_FRACTION * (tally.parts - 1):
        return 0
    usual = statistics.fmean(others) / window
    is_alike = own <= others[-ALIKE_PARTS] or binomial_tail(own, len(seen), usual) > LARGEST_CHANCE
    return len(others) if is_alike else 0


def _common_cause(rule: CounterRule) -> Finding:
    return Finding(
        f"{rule.what} rise alike on several parts of nodes like this one, so none of them is blamed",
        fix="compare what these nodes have in common and others do not: firmware, driver, load",
        severity="info",
        code=f"{rule.code}-alike",
    )


def _burst(rule: CounterRule, latest: Iterable[CounterStep]) -> Sequence[CounterStep]:
    """Return the latest interval that alone is more than healthy parts ever count; its time must be known."""
    if rule.most is not None:
        for each in latest:
            hours = max(1.0, each.seconds / _HOUR)  # a few errors in a minute are not extrapolated to an hour
            if each.seconds > 0 and each.rise > rule.most and each.rise / hours > rule.per_hour:
                return (each,)
    return ()


def _finding(
    rule: CounterRule, past: NodePast, slot: str, name: str, seen: Sequence[CounterStep], chance: float
) -> Finding:
    rises = [s for s in seen if s.kind == "rise"]
    total = sum(s.rise for s in rises)
    hours = sum(max(0.0, s.seconds) for s in seen) / _HOUR
    links = _links(past, slot, name)
    where = f", most on link {links}" if links else ""
    ago = (past.now.at - seen[-1].until).total_seconds() / _HOUR
    once = f"between two runs, the later one {math.ceil(ago)} h ago" if ago > 0 else "since the last run"
    often = f"in {len(rises)} of the last {len(seen)} runs" if len(seen) > 1 else once
    usual = f"other parts' rise in {chance:.1%} of runs" if len(seen) > 1 else f"at most {rule.most} are expected"
    message = f"{total} {rule.what} {often}, {_in(hours)}{where}; {usual}"
    return Finding(
        message,
        expected=round(chance * len(seen), 3) if len(seen) > 1 else rule.most,
        found=len(rises) if len(seen) > 1 else total,
        unit="runs in which it rose" if len(seen) > 1 else rule.what,
        part=slot,
        severity=rule.severity,
        code=rule.code,
        fix=rule.fix,
    )


def _in(hours: float) -> str:
    return f"in {hours / 24:.0f} days" if hours >= 48 else f"in {math.ceil(hours)} h"


def _links(past: NodePast, slot: str, name: str) -> str:
    """Return the number of the link that counts most; empty if the figures do not tell links apart."""
    link = re.compile(rf"{re.escape(slot)}\.link(\d+)\.{re.escape(name)}")
    counts = {m[1]: value for figure, value in past.now.figures.items() if value and (m := link.fullmatch(figure))}
    return max(counts, key=lambda link: counts[link]) if counts else ""
