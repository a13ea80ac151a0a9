"""Baseboard management controller: its sensors and its event log, from ``ipmitool``, and whether there is one.

``Fan1 | 30h | ok | 7.1 | 5040 RPM`` is a sensor, ``1 | 06/14/2023 | 10:01:17 | Power Supply PS2 Status | Power Supply
AC lost | Asserted`` an event. Nothing here changes or clears the log.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Literal, TypeVar

from gpuops.probes.host.clock import Clock
from gpuops.probes.host.system import System
from gpuops.probes.numbers import integer
from gpuops.probing import Probe, Unknown, failure_of
from gpuops.shell import Command, Completed, Files, read_files

_SENSOR_CELLS = 5
_EVENT_CELLS = 6
_STATUSES = frozenset({"ok", "nc", "cr", "nr", "ns", "na", "us", "lnc", "lcr", "lnr", "unc", "ucr", "unr"})
_RECORD = re.compile(r" *[0-9a-f]{1,8} *\|", re.IGNORECASE | re.ASCII)
_EMPTY = "SEL has no entries"
_SECONDS = 60.0
_ACCEPTED = frozenset({0, 1})  # ipmitool exits with 1 if one of its requests failed, and lists what it did get
NO_INPUT = "look at the power cord, the outlet and the feed first; if they are well, have the power supply replaced"
"""What to do about a power supply without input, whichever way the BMC reports it."""

T = TypeVar("T")


@dataclass(frozen=True)
class BmcPresence:
    """Presence of an IPMI device in the kernel, and of a declaration by the firmware (SMBIOS type 38)."""

    device: bool
    declared: bool


@dataclass(frozen=True, slots=True)
class Sensor:
    """One row of ``sdr elist``: ``status`` is ok, nc, cr, nr or ns (not specified), ``entity`` such as ``10.1``."""

    name: str
    status: str
    entity: str
    reading: str


@dataclass(frozen=True, slots=True)
class BmcEvent:
    """One row of ``sel elist``; ``date`` and ``time`` are the BMC's own, or ``Pre-Init`` and a number."""

    record: str
    date: str
    time: str
    sensor: str
    event: str
    asserted: bool


@dataclass(frozen=True)
class EventLog:
    """Header of the event log. If it ``overflowed``, later events were lost."""

    entries: int | None
    overflowed: bool


def parse_presence(text: str) -> BmcPresence:
    """Read the paths of `bmc_presence`."""
    paths = read_files(text)
    device = any(path.startswith("/sys/class/ipmi/") for path in paths)
    return BmcPresence(device, any(path.startswith("/sys/firmware/dmi/") for path in paths))


def parse_sensors(text: str) -> tuple[Sensor, ...] | Unknown:
    """Return the sensors in the output of ``ipmitool sdr elist``; remarks between the rows are skipped."""
    if not text.endswith("\n"):
        return Unknown("ipmitool sdr elist: the list is truncated" if text else "ipmitool sdr elist printed nothing")
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    sensors = tuple(
        Sensor(row[0], row[2], row[3], row[4]) for row in rows if len(row) == _SENSOR_CELLS and row[2] in _STATUSES
    )
    return sensors or Unknown(f"ipmitool sdr elist: expected sensors, found {text[:80]!r}")


def parse_events(text: str) -> tuple[BmcEvent, ...] | Unknown:
    """Return the events in the output of ``ipmitool sel elist``; records that only the maker can read are skipped."""
    if _EMPTY in text:
        return ()
    rows = [line for line in text.splitlines() if _RECORD.match(line)]
    if not text.endswith("\n") or not rows:
        return Unknown(f"ipmitool sel elist: expected events, found {text[-80:]!r}")
    return tuple(event for event in map(_event, rows) if event)


def _read_sensors(answer: Completed) -> tuple[Sensor | Unknown, ...] | Unknown:
    return _with_failure(answer, parse_sensors(answer.out))


def _read_events(answer: Completed) -> tuple[BmcEvent | Unknown, ...] | Unknown:
    """Read the events; ipmitool reports an empty log on standard error."""
    return () if _EMPTY in answer.err else _with_failure(answer, parse_events(answer.out))


def _with_failure(answer: Completed, rows: tuple[T, ...] | Unknown) -> tuple[T | Unknown, ...] | Unknown:
    """Return the rows, and that others may be missing if ipmitool exited with 1: one record failed, or the list ended.

    Without rows its last words say why.
    """
    if not answer.exit:
        return rows
    failure = failure_of(answer)
    return failure if isinstance(rows, Unknown) or not rows else (*rows, failure)


def _event(row: str) -> BmcEvent | None:
    cells = [cell.strip() for cell in row.split("|")]
    if len(cells) < _EVENT_CELLS or cells[5] not in ("Asserted", "Deasserted"):
        return None
    return BmcEvent(cells[0], cells[1], cells[2], cells[3], cells[4], asserted=cells[5] == "Asserted")


def parse_event_log(text: str) -> EventLog | Unknown:
    """Return the header of the event log, from ``ipmitool sel info``."""
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    if fields.get("Overflow") not in ("true", "false"):
        return Unknown(f"ipmitool sel info: expected Overflow, found {text[-80:]!r}")
    return EventLog(integer(fields.get("Entries")), fields["Overflow"] == "true")


def _read_event_log(answer: Completed) -> EventLog | Unknown:
    """Read the header, of which the one needed line is whole or missing, whatever ipmitool says of other lines."""
    log = parse_event_log(answer.out)
    return failure_of(answer) if answer.exit and isinstance(log, Unknown) else log


def kind_of(name: str) -> str:
    """Return a part's name without its number: parts of one kind are peers."""
    return re.sub(r"\d+", "#", name)


def booted_at(machine: System | Unknown, now: Clock | Unknown) -> dt.datetime | None:
    """Return when the node booted; None if that is unknown."""
    if isinstance(machine, Unknown) or isinstance(now, Unknown) or machine.uptime_seconds is None:
        return None
    return dt.datetime.fromtimestamp(now.unix_seconds - machine.uptime_seconds, dt.timezone.utc)


def event_severity(at: dt.datetime | None, boot: dt.datetime | None) -> Literal["info", "warn"] | None:
    """Return info for an event from before the boot, the check's own severity for a later one, warn if unknown.

    The part was replaced, or shows again. A day is for the BMC's clock and its time zone.
    """
    if boot is None or at is None:
        return "warn"
    return "info" if at < boot - dt.timedelta(days=1) else None


def _ipmitool(*words: str) -> Command:
    return Command(("ipmitool", *words), timeout_seconds=_SECONDS, become="if-refused")


bmc_presence: Probe[BmcPresence] = Probe(
    "bmc_presence",
    Files(("/sys/class/ipmi/*", "/sys/firmware/dmi/entries/38-*")),
    lambda answer: parse_presence(answer.out),
)
"""Presence of a BMC; needs no root."""

bmc_sensors: Probe[tuple[Sensor | Unknown, ...]] = Probe(
    "bmc_sensors", _ipmitool("sdr", "elist"), _read_sensors, accepts=_ACCEPTED, cost="slow"
)
"""Sensors of the BMC, and what kept ipmitool from listing more. Asking takes up to a minute, or longer if it hangs."""

bmc_events: Probe[tuple[BmcEvent | Unknown, ...]] = Probe(
    "bmc_events", _ipmitool("sel", "elist"), _read_events, accepts=_ACCEPTED, cost="slow"
)
"""Event log of the BMC, the oldest event first, and what kept ipmitool from listing more."""

bmc_event_log: Probe[EventLog] = Probe(
    "bmc_event_log", _ipmitool("sel", "info"), _read_event_log, accepts=_ACCEPTED, cost="slow"
)
"""Header of the event log."""
