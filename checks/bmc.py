"""The BMC reports no lost power supply, no failed fan, and no serious event since boot."""

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.judging.alike import unfed_supplies
from gpuops.probes.host.bmc import (
    NO_INPUT,
    BmcEvent,
    BmcPresence,
    EventLog,
    Sensor,
    bmc_event_log,
    bmc_events,
    bmc_presence,
    bmc_sensors,
    booted_at,
    event_severity,
    kind_of,
)
from gpuops.probes.host.clock import Clock, clock
from gpuops.probes.host.redfish import RedfishReport, redfish
from gpuops.probes.host.system import System, system

_NO_SUPPLY = ("Failure detected", "Predictive failure", "AC lost", "AC out-of-range", "Config Error")
_FAILED = ("Failure detected", "Predictive failure", "Config Error")
"""A supply in one of these states has a fault of its own, whether it has input or not."""
_NOT_REDUNDANT = ("Redundancy Lost", "Non-Redundant")
_GRAVE = (
    *("Power Supply AC lost", "Power Supply Failure", "Power Supply input lost", "Failure detected"),
    *("Uncorrectable error", "Uncorrectable ECC", "Bus Fatal Error", "PCI SERR", "NVIDIA_MCA_Error", "BIOS corruption"),
)
_STOPPED = ("IERR", "Thermal Trip", "SM BIOS Uncorrectable CPU-complex Error", "Uncorrectable machine check exception")
"""Events of a processor that stop the machine, so they are always from before a boot."""
_WARNING = ("Throttled", "Upper Critical going high", "Lower Critical going low", "Non-recoverable", "Drive Fault")
"""Events that may be over, or caused by the room; a sensor that still exceeds its limit is a finding of its own."""
_CRITICAL = ("cr", "nr", "lcr", "lnr", "ucr", "unr")
_RPM = re.compile(r"(\d{1,6}) RPM", re.ASCII)
_CRASHED = "look for the machine checks and PCIe errors of that time; if it comes back, have the processor inspected"
_SAVE = "save the log (ipmitool sel save FILE), give it to the maker, then clear it (ipmitool sel clear)"


@check(
    needs=(bmc_presence, bmc_sensors, bmc_events, bmc_event_log, system, clock, redfish),
    tolerates=(bmc_sensors, bmc_events, bmc_event_log, system, clock, redfish),
    severity="fail",
    tags=("standard", "host", "power", "temperature"),
    catches="a dead power supply or fan: the node works until the next one fails, or runs slowly",
    fix="ipmitool sdr elist and ipmitool sel elist show more; have the part replaced",
    fix_in_common="look at what these nodes share: the power feed, inlet temperature and coolant, the BMC's firmware",
)
def bmc(
    presence: BmcPresence,
    sensors: tuple[Sensor | Unknown, ...] | Unknown,
    events: tuple[BmcEvent | Unknown, ...] | Unknown,
    log: EventLog | Unknown,
    machine: System | Unknown,
    now: Clock | Unknown,
    over_redfish: RedfishReport | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """The check judges the states of sensors, and asserted events that were not deasserted.

    A bad power supply fails if no redundancy is left (a sensor reports so, or at most half of the supplies are good);
    otherwise it warns. Several supplies without input are one finding on what feeds them. A fan fails at its critical
    limit, or if it stops while others of its kind turn.

    Events from before the boot are information: either the part was replaced, or it reports again. An event that
    stopped a processor warns even then, because it ended the previous boot. If ipmitool's list is incomplete, its rows
    are judged and the rest is unknown. A finding that depends on missing rows (redundancy, a deasserted event) then
    only warns. Virtual machines and nodes without a BMC are skipped. So are nodes whose BMC lists its parts over
    Redfish, because the check redfish judges the same sensors; only a bad power supply that Redfish calls good warns.
    Source: IPMI 2.0, table 42-3 (power supply, redundancy; sensor type 07h, processor: IERR, thermal trip);
    facebookresearch/gcm, check_ipmitool.py (the events); our own figure: a day of tolerance for the BMC's clock and
    time zone.
    """
    if not isinstance(over_redfish, Unknown) and over_redfish.has_parts:
        yield NotApplicable("the BMC answers over Redfish, so the check redfish judges it")
        if over_redfish.has_good_supplies and not isinstance(sensors, Unknown):
            rows = [row for row in sensors if isinstance(row, Sensor)]
            yield from map(_contradicting, _supplies(rows, are_all=False))
        return
    guest = not isinstance(machine, Unknown) and machine.virtual
    if not presence.device:
        driver = "the kernel has no IPMI device; load the modules ipmi_si and ipmi_devintf"
        yield Unknown(driver) if presence.declared and not guest else NotApplicable("the machine has no BMC")
        return
    sensors = (sensors,) if isinstance(sensors, Unknown) else sensors
    events = (events,) if isinstance(events, Unknown) else events
    yield from (unread for unread in (*sensors, *events, log) if isinstance(unread, Unknown))
    rows = [row for row in sensors if isinstance(row, Sensor)]
    named = {sensor.name for sensor in _bad_supplies(rows)}
    for finding in (*_supplies(rows, are_all=len(rows) == len(sensors)), *_fans(rows), *_others(rows)):
        named.add(str(finding.part))
        yield finding
    boot = booted_at(machine, now)
    logged = [row for row in events if isinstance(row, BmcEvent)]
    for event in _standing(logged):
        if not any(event.sensor.endswith(name) for name in named):
            yield from _judged(event, boot, are_all=len(logged) == len(events))
    if not isinstance(log, Unknown) and log.overflowed:
        message = "the event log of the BMC is full, so new events are lost"
        yield Finding(message, expected="false", found="true", part="bmc", severity="warn", code="full", fix=_SAVE)


def _contradicting(finding: Finding) -> Finding:
    """Return what ipmitool says of a supply, though the same BMC says over Redfish that all of them are well."""
    message = f"{finding.message}; over Redfish, the BMC reports that all its power supplies are well"
    return replace(finding, message=message, severity="warn")


def _supplies(sensors: Sequence[Sensor], *, are_all: bool) -> Iterator[Finding]:
    bad = {sensor.name: sensor for sensor in _bad_supplies(sensors)}
    present = [s for s in sensors if "Presence detected" in s.reading or s.name in bad]
    kinds = {kind_of(s.name) for s in present}
    absent = [
        s for s in sensors if s.status == "ok" and not s.reading and s.entity[:3] == "10." and kind_of(s.name) in kinds
    ]
    redundancy = next((s for s in sensors if any(word in s.reading for word in _NOT_REDUNDANT)), None)
    alone = redundancy is not None or (are_all and 2 * (len(present) - len(bad)) <= len(present))
    lost = f"{redundancy.name}: {redundancy.reading}" if redundancy else ""
    unfed = _unfed(list(bad.values()))
    if unfed:
        yield unfed_supplies((s.name for s in unfed), unfed[0].reading, "Presence detected", lost, fails=alone)
    for sensor in (each for each in (*bad.values(), *absent) if each not in unfed):
        what = sensor.reading.replace("Presence detected, ", "") or "absent, while others of its kind are present"
        message = f"power supply {sensor.name}: {what}{'; ' if lost else ''}{lost}"
        fails = redundancy is not None or (alone and sensor.name in bad)
        told = _finding(sensor, message, "Presence detected", "supply", fails=fails)
        yield replace(told, fix=NO_INPUT) if "AC lost" in sensor.reading else told
    if redundancy is not None and not bad and not absent:
        yield _finding(redundancy, f"{redundancy.name}: {redundancy.reading}", "Fully Redundant", "supply", fails=False)


def _bad_supplies(sensors: Sequence[Sensor]) -> list[Sensor]:
    return [sensor for sensor in sensors if any(word in sensor.reading for word in _NO_SUPPLY)]


def _unfed(bad: Sequence[Sensor]) -> list[Sensor]:
    """Return the supplies that have lost nothing but their input, if there are several: they share a feed."""
    unfed = [sensor for sensor in bad if not any(word in sensor.reading for word in _FAILED)]
    return unfed if len(unfed) > 1 else []


def _fans(sensors: Sequence[Sensor]) -> Iterator[Finding]:
    rpm = {s.name: int(match[1]) for s in sensors if (match := _RPM.fullmatch(s.reading))}
    turning = {kind_of(s.name) for s in sensors if rpm.get(s.name)}
    for sensor in (s for s in sensors if s.name in rpm):
        if sensor.status in _CRITICAL:
            message = f"fan {sensor.name}: {sensor.reading}, beyond its critical limit"
            yield _finding(sensor, message, "ok", "fan", fails=True)
        elif not rpm[sensor.name] and kind_of(sensor.name) in turning:
            yield _finding(
                sensor, f"fan {sensor.name} does not turn, although others of its kind do", "RPM", "fan", fails=True
            )


def _others(sensors: Sequence[Sensor]) -> Iterator[Finding]:
    for sensor in sensors:
        if sensor.status in _CRITICAL and not _RPM.fullmatch(sensor.reading):
            message = f"{sensor.name}: {sensor.reading or 'no reading'}, beyond its critical limit"
            yield _finding(sensor, message, "ok", "sensor", fails=False)


def _finding(sensor: Sensor, message: str, expected: str, code: str, *, fails: bool) -> Finding:
    part = PartName(sensor.name, f"{sensor.name} (BMC sensor, entity {sensor.entity})")
    severity: Literal["warn"] | None = None if fails else "warn"
    return Finding(
        message, expected=expected, found=sensor.reading or sensor.status, part=part, severity=severity, code=code
    )


def _standing(events: Sequence[BmcEvent]) -> list[BmcEvent]:
    """Return the last event of each kind and sensor, if it is asserted."""
    last = {(event.sensor, event.event): event for event in events}
    return [event for event in last.values() if event.asserted]


def _judged(event: BmcEvent, boot: dt.datetime | None, *, are_all: bool) -> Iterator[Finding]:
    only_warns = any(word in event.event for word in _WARNING)
    stopped = event.event.startswith(_STOPPED)
    if not only_warns and not stopped and not any(word in f"{event.sensor} {event.event}" for word in _GRAVE):
        return
    at = _date(event)
    message = f"BMC event of {event.date} {event.time}: {event.sensor}: {event.event}"
    severity = event_severity(at, boot)
    if (only_warns or stopped or not are_all) and severity is None:
        severity = "warn"
    yield Finding(
        message,
        expected="no grave event since boot",
        found=event.event,
        fix=_CRASHED if stopped else "",
        part=PartName(event.sensor, f"{event.sensor} (BMC event {event.record})"),
        severity=severity,
        code="event",
    )


def _date(event: BmcEvent) -> dt.datetime | None:
    """Return the day of the event; None if the BMC's clock was not set, or ran in 1970."""
    for pattern in ("%m/%d/%Y", "%m/%d/%y"):
        try:
            at = dt.datetime.strptime(event.date, pattern).replace(tzinfo=dt.timezone.utc)
        except ValueError:
            continue
        return at if at.year > _UNSET_YEAR else None
    return None


_UNSET_YEAR = 2000
