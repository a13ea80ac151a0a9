"""The BMC reports over Redfish no lost power supply, no failed fan, and no critical event since boot."""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Literal

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.judging.alike import unfed_supplies
from gpuops.probes.host.bmc import NO_INPUT, booted_at, event_severity, kind_of
from gpuops.probes.host.clock import Clock, clock
from gpuops.probes.host.redfish import (
    HardwarePart,
    RedfishEntry,
    RedfishLog,
    RedfishReport,
    RedundancyGroup,
)
from gpuops.probes.host.redfish import redfish as redfish_report
from gpuops.probes.host.system import System, system

_BAD = ("Warning", "Critical")
_NO_INPUT = ("LossOfInput", "OutOfRange")
_NOT_JUDGED = ("Absent", "Disabled")
_CODES = {
    **dict.fromkeys(("Power Supply / Converter", "PowerUnit"), "supply"),
    **dict.fromkeys(("Fan", "CoolingDevice"), "fan"),
    "Temperature": "temperature",
}
_MAKERS_FORM = "Oem"
_EARLIEST = dt.datetime.min.replace(tzinfo=dt.timezone.utc)
_SAVE = "save the log, give it to the maker, then clear it in the BMC"


@check(
    needs=(redfish_report, system, clock),
    tolerates=(system, clock),
    severity="fail",
    tags=("standard", "host", "power", "temperature"),
    catches="a dead power supply or fan: the node works until the next one fails, or runs slowly",
    fix="the BMC's own pages show more; have the part replaced",
    fix_in_common="look at what these nodes share: the power feed, inlet temperature and coolant, the BMC's firmware",
)
def redfish(
    report: RedfishReport, machine: System | Unknown, now: Clock | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown | NotApplicable]:
    """The check judges Health, State and LineInputStatus of parts, and open log entries of severity Critical.

    A bad power supply fails if no redundancy is left; otherwise it warns. No redundancy is left if its group reports so
    or has fewer good members than it needs, or if at most half of the supplies give power. Several supplies without
    input are one finding on what feeds them. An empty bay beside supplies of its kind warns, unless its redundancy
    group is healthy; if the group is critical, it fails.

    A fan fails if it is Critical, or stops while others of its kind turn. Log entries from before the boot, without a
    date or in a vendor's own format never fail. Hosts without bmc_address are skipped. Source: DMTF DSP0268, DSP2046
    (Health, State, Redundancy, LogEntry); our own figure: a day of tolerance for the BMC's clock and time zone.
    """
    if not report.configured:
        yield NotApplicable("the inventory sets no bmc_address")
        return
    parts = {
        finding.part: finding
        for findings in (_supplies(report), _fans(report), _temperatures(report))
        for finding in findings
    }
    yield from parts.values()
    if report.power_states and set(report.power_states) == {"Off"}:
        message = "the BMC reports that the machine is off, but the node answers: it is the BMC of another machine"
        yield Finding(message, expected="On", found="Off", part="bmc", severity="warn", code="power-state")
    boot = booted_at(machine, now)
    named = {finding.code for finding in parts.values()}
    named |= {part.id for part in report.parts if part.name in parts or part.line_input in _NO_INPUT}
    for entry in _standing(report.entries):
        if not named & {_CODES.get(entry.sensor[0]), entry.origin or None}:
            yield _event(entry, boot)
    for log in report.logs:
        yield from _log(log, report.entries, boot)


def _supplies(report: RedfishReport) -> Iterator[Finding]:
    supplies = [part for part in report.parts if part.kind == "supply"]
    present = [part for part in supplies if part.state not in _NOT_JUDGED]
    findings = [*_bad(report, present), *_absent(report, supplies, {kind_of(part.name) for part in present})]
    yield from findings
    for group in (group for group in report.groups if group.kind == "supply" and group.health in _BAD and not findings):
        message = f"{group.name}: {group.health}"
        yield Finding(
            message, expected="OK", found=group.health, part=PartName(group.name), severity="warn", code="supply"
        )


def _bad(report: RedfishReport, present: Sequence[HardwarePart]) -> Iterator[Finding]:
    good = [part for part in present if not _is_dead(part)]
    unfed = _unfed(present)
    is_short = 2 * len(good) <= len(present)
    if unfed:
        lost = next((group for part in unfed for group in _groups(report, part) if _is_lost(group, good)), None)
        fails = lost is not None or (is_short and any(map(_is_dead, unfed)))
        yield unfed_supplies((p.name for p in unfed), unfed[0].line_input, "Normal", _told(lost), fails=fails)
    for part in (part for part in present if _fault(part) and part not in unfed):
        lost = next((group for group in _groups(report, part) if _is_lost(group, good)), None)
        fails = lost is not None or (_is_dead(part) and is_short)
        yield _finding(
            part, f"power supply {part.name}: {_fault(part)}{'; ' if lost else ''}{_told(lost)}", fails=fails
        )


def _unfed(present: Sequence[HardwarePart]) -> list[HardwarePart]:
    """Return the supplies without input if there are several: they share a feed."""
    unfed = [part for part in present if part.line_input in _NO_INPUT]
    return unfed if len({part.name for part in unfed}) > 1 else []


def _told(lost: RedundancyGroup | None) -> str:
    return f"{lost.name} is lost" if lost else ""


def _absent(report: RedfishReport, supplies: Sequence[HardwarePart], kinds: set[str]) -> Iterator[Finding]:
    for part in (part for part in supplies if part.state == "Absent" and kind_of(part.name) in kinds):
        groups = _groups(report, part)
        if not groups or any(group.health in _BAD for group in groups):
            fails = any(group.health == "Critical" for group in groups)
            message = f"power supply {part.name}: absent, its peers are present"
            yield _finding(part, message, fails=fails, code="absent")


def _fault(part: HardwarePart) -> str:
    """Return what the BMC reports of a bad supply; empty for a good one, and for one on standby."""
    if part.line_input in _NO_INPUT:
        return part.line_input
    if part.health in _BAD:
        return f"{part.health} ({part.state})" if part.state else part.health
    return part.state if part.state == "UnavailableOffline" else ""


def _is_dead(part: HardwarePart) -> bool:
    """Return whether the supply gives no power; one that only needs attention does."""
    return part.health == "Critical" or part.line_input == "LossOfInput" or part.state == "UnavailableOffline"


def _groups(report: RedfishReport, part: HardwarePart) -> list[RedundancyGroup]:
    return [group for group in report.groups if _covers(group, part)]


def _covers(group: RedundancyGroup, part: HardwarePart) -> bool:
    return group.kind == part.kind and (not group.members or part.id in group.members)


def _is_lost(group: RedundancyGroup, good: Sequence[HardwarePart]) -> bool:
    count = sum(1 for part in good if _covers(group, part))
    return group.health == "Critical" or (group.needed is not None and count < group.needed)


def _fans(report: RedfishReport) -> Iterator[Finding]:
    fans = [part for part in report.parts if part.kind == "fan" and part.state not in _NOT_JUDGED]
    turning = {kind_of(fan.name) for fan in fans if fan.reading}
    for fan in fans:
        if fan.health == "Critical":
            yield _finding(fan, f"fan {fan.name}: Critical{_speed(fan)}", fails=True)
        elif fan.reading == 0 and kind_of(fan.name) in turning:
            yield _finding(fan, f"fan {fan.name} does not turn, although others of its kind do", fails=True)
        elif fan.health == "Warning":
            yield _finding(fan, f"fan {fan.name}: Warning{_speed(fan)}", fails=False)


def _speed(fan: HardwarePart) -> str:
    return "" if fan.reading is None else f", {fan.reading:g} {fan.unit}".rstrip()


def _temperatures(report: RedfishReport) -> Iterator[Finding]:
    for part in report.parts:
        if part.kind == "temperature" and part.health == "Critical" and part.state not in _NOT_JUDGED:
            reading = "" if part.reading is None else f"{part.reading:g} °C, "
            yield _finding(part, f"temperature {part.name}: {reading}Critical", fails=False)


def _finding(part: HardwarePart, message: str, *, fails: bool, code: str = "") -> Finding:
    severity: Literal["warn"] | None = None if fails else "warn"
    found = " ".join(filter(None, (part.state, part.health, part.line_input))) or "no status"
    chassis = "".join(part.id.split("/")[4:5])
    name = PartName(part.name, f"{part.name} (BMC, chassis {chassis})")
    fix = NO_INPUT if part.line_input == "LossOfInput" else ""
    return Finding(
        message, expected="Enabled OK", found=found, fix=fix, part=name, severity=severity, code=code or part.kind
    )


def _standing(entries: Sequence[RedfishEntry]) -> list[RedfishEntry]:
    """Return the last critical entry of each sensor, or of each message, unless a later one or a mark ends it."""
    last: dict[tuple[object, ...], RedfishEntry] = {}
    for entry in sorted(entries, key=lambda each: (each.created or _EARLIEST, each.number)):
        by_message = (entry.message_id, entry.message) if entry.message_id or entry.message else (entry.id,)
        key = by_message if entry.sensor[1] is None else entry.sensor
        if entry.resolved or entry.cleared:
            last.pop(key, None)
        elif entry.severity == "Critical":
            last[key] = entry
    return list(last.values())


def _event(entry: RedfishEntry, boot: dt.datetime | None) -> Finding:
    severity = event_severity(entry.created, boot)
    if severity is None and entry.form == _MAKERS_FORM:
        severity = "warn"
    at = f"{entry.created:%Y-%m-%d %H:%M}" if entry.created else "an unknown date"
    name = entry.sensor[0] or entry.message_id or "event"
    return Finding(
        f"BMC event of {at}: {entry.message or entry.message_id or entry.id}",
        expected="no critical event since boot",
        found=entry.message_id or entry.severity,
        part=PartName(name, f"{name} (BMC event {entry.id})"),
        severity=severity,
        code="event",
    )


def _log(log: RedfishLog, entries: Sequence[RedfishEntry], boot: dt.datetime | None) -> Iterator[Finding | Unknown]:
    if log.full:
        message = f"the event log {log.path} of the BMC is full, so new events are lost"
        yield Finding(
            message,
            expected="room",
            found=f"{log.entries} entries",
            part="bmc",
            severity="warn",
            code="full",
            fix=_SAVE,
        )
    own = [entry.created for entry in entries if entry.id.startswith(f"{log.path}/") and entry.created]
    reaches_boot = boot is not None and bool(own) and own[-1] < boot < own[0]
    if log.read < log.entries and not reaches_boot:  # unless it is newest first, and was read beyond the boot
        yield Unknown(f"the event log {log.path} has {log.entries} entries, of which {log.read} could be read")
