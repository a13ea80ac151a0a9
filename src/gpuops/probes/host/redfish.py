"""Supplies, fans, temperatures, redundancy, power state and event logs of a node's BMC, over Redfish.

Both schemas are read: ``Power`` and ``Thermal``, and the newer ``PowerSubsystem`` and ``ThermalSubsystem``. If a
chassis has both, the newer one counts. Source: DMTF DSP0268 (Redfish Data Model Specification); what makers do with it
is in tests/specimens/redfish.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed, Resources

Kind = Literal["supply", "fan", "temperature"]
_CHASSIS, _LOG_OWNERS = "/redfish/v1/Chassis/*", ("/redfish/v1/Systems/*", "/redfish/v1/Managers/*")
_LOGS = "/LogServices/*"
PATHS = (
    "/redfish/v1/Systems/*",
    *(f"{_CHASSIS}/{rest}" for rest in ("Power", "PowerSubsystem", "PowerSubsystem/PowerSupplies/*")),
    *(f"{_CHASSIS}/{rest}" for rest in ("Thermal", "ThermalSubsystem", "ThermalSubsystem/Fans/*")),
    *(f"{owner}{_LOGS}{rest}" for owner in _LOG_OWNERS for rest in ("", "/Entries", "/Entries/*")),
)
_SECONDS = 120.0
_LONGEST_TEXT = 160
_UNSET_YEAR = 2000


@dataclass(frozen=True, slots=True)
class HardwarePart:
    """A part that a BMC lists. ``state`` and ``health`` are Redfish's words, empty if the BMC gives none.

    ``reading`` is a fan's speed in ``unit`` (RPM or Percent), or degrees Celsius. ``line_input`` is Normal,
    LossOfInput or OutOfRange. ``name`` is unique among the parts of its kind in a chassis.
    """

    kind: Kind
    name: str
    id: str
    state: str = ""
    health: str = ""
    reading: float | None = None
    unit: str = ""
    line_input: str = ""
    serial: str = ""


@dataclass(frozen=True, slots=True)
class RedundancyGroup:
    """Parts that can replace each other; ``needed`` of them must be good. ``members`` are ids; empty if not listed."""

    kind: Kind
    name: str
    health: str
    needed: int | None
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RedfishLog:
    """An event log: how many entries it has, how many were read, and whether new ones are lost because it is full."""

    path: str
    entries: int
    read: int
    full: bool


@dataclass(frozen=True, slots=True)
class RedfishEntry:
    """An entry of an event log. ``created`` is the BMC's time; None if its clock was not set.

    ``sensor`` is type and number (None if the entry names none), ``origin`` the id of the part. ``cleared``: it ends
    what earlier entries of its sensor began. ``resolved``: a user, or the BMC, marked it so.
    """

    id: str
    number: int
    created: dt.datetime | None
    severity: str
    form: str
    message: str
    message_id: str = ""
    sensor: tuple[str, int | None] = ("", None)
    origin: str = ""
    cleared: bool = False
    resolved: bool = False


@dataclass(frozen=True)
class RedfishReport:
    """What a BMC reports; nothing if the inventory names none (``configured`` is False)."""

    configured: bool = True
    power_states: tuple[str, ...] = ()
    parts: tuple[HardwarePart, ...] = ()
    groups: tuple[RedundancyGroup, ...] = ()
    logs: tuple[RedfishLog, ...] = ()
    entries: tuple[RedfishEntry, ...] = ()

    @property
    def has_parts(self) -> bool:
        """True if it lists at least one part that is there."""
        return any(part.state != "Absent" for part in self.parts)

    @property
    def has_good_supplies(self) -> bool:
        """True if it lists power supplies, and reports nothing but health of them and of their groups."""
        supplies = [part for part in self.parts if part.kind == "supply"]
        health = {*(s.health for s in supplies), *(group.health for group in self.groups if group.kind == "supply")}
        return bool(supplies) and health <= {"", "OK"} and all(s.line_input in ("", "Normal") for s in supplies)


NOT_CONFIGURED = RedfishReport(configured=False)
Body = Mapping[str, Any]


def parse_redfish(text: str) -> RedfishReport | Unknown:
    """Read the answer to `redfish`."""
    document = json.loads(text)
    bodies = {path: body for path, body in _map(document).items() if isinstance(body, dict)}
    parts, groups = _parts(bodies)
    logs = tuple(_logs(bodies))
    entries = tuple(entry for path, body in bodies.items() for entry in _entries(path, body))
    systems = [
        body for path, body in bodies.items() if path.count("/") == 4 and path.startswith("/redfish/v1/Systems/")
    ]
    if not (parts or logs or systems):
        return Unknown("the BMC (Redfish) lists no system, no part and no log")
    states = tuple(_text(body, "PowerState") for body in systems)
    return RedfishReport(
        power_states=tuple(filter(None, states)), parts=parts, groups=groups, logs=logs, entries=entries
    )


def _parts(bodies: Mapping[str, Body]) -> tuple[tuple[HardwarePart, ...], tuple[RedundancyGroup, ...]]:
    """Return the parts of every chassis, each supply once: two chassis may list the same."""
    parts: list[HardwarePart] = []
    groups: list[RedundancyGroup] = []
    for chassis in dict.fromkeys("/".join(path.split("/")[:5]) for path in bodies if path.startswith(_CHASSIS[:-1])):
        for kind, old, new, members, group_key in _SCHEMAS:
            listed = [*_numbered(kind, _below(bodies, f"{chassis}/{new}/{members}/"))]
            source = bodies.get(f"{chassis}/{new}" if listed else f"{chassis}/{old}", {})
            parts += listed or _numbered(kind, _list(source, members))
            groups += _groups(kind, source, group_key if listed else "Redundancy")
        parts += _numbered("temperature", _list(bodies.get(f"{chassis}/Thermal", {}), "Temperatures"))
    by_serial = {part.serial or index: part for index, part in reversed([*enumerate(parts)])}
    return tuple(part for index, part in enumerate(parts) if by_serial[part.serial or index] is part), tuple(groups)


_SCHEMAS: tuple[tuple[Kind, str, str, str, str], ...] = (
    ("supply", "Power", "PowerSubsystem", "PowerSupplies", "PowerSupplyRedundancy"),
    ("fan", "Thermal", "ThermalSubsystem", "Fans", "FanRedundancy"),
)


def _below(bodies: Mapping[str, Body], prefix: str) -> list[Body]:
    return [body for path, body in bodies.items() if path.startswith(prefix) and "/" not in path[len(prefix) :]]


def _numbered(kind: Kind, bodies: Iterable[Body]) -> list[HardwarePart]:
    """Return the parts; those of the same name get their number behind it."""
    parts = [(_part(kind, body), _text(body, "MemberId") or _text(body, "Id")) for body in bodies]
    count = Counter(part.name for part, _ in parts)
    return [
        replace(part, name=f"{part.name} {number or place}") if count[part.name] > 1 else part
        for place, (part, number) in enumerate(parts, start=1)
    ]


def _part(kind: Kind, body: Body) -> HardwarePart:
    status, speed = _map(body.get("Status")), _map(body.get("SpeedPercent"))
    name = next(filter(None, (_text(body, key) for key in ("Name", "FanName", "MemberId", "Id"))), kind)
    readings: dict[str, object] = {
        "RPM": speed.get("SpeedRPM"),
        "Percent": speed.get("Reading"),
        _text(body, "ReadingUnits") or _text(body, "Units") or "": body.get("Reading", body.get("CurrentReading")),
        "Celsius": body.get("ReadingCelsius"),
    }
    unit, reading = next(((u, n) for u, value in readings.items() if (n := _number(value)) is not None), ("", None))
    return HardwarePart(
        kind,
        name,
        _id(body),
        _text(status, "State"),
        _text(status, "Health"),
        reading,
        unit,
        _text(body, "LineInputStatus"),
        _text(body, "SerialNumber") if kind == "supply" else "",
    )


def _groups(kind: Kind, source: Body, key: str) -> Iterator[RedundancyGroup]:
    for body in _list(source, key):
        needed = _number(body.get("MinNeededInGroup", body.get("MinNumNeeded")))
        links = [*_list(body, "RedundancyGroup"), *_list(body, "RedundancySet")]
        yield RedundancyGroup(
            kind,
            _text(body, "Name") or f"{kind} redundancy",
            _text(_map(body.get("Status")), "Health"),
            None if needed is None else int(needed),
            tuple(filter(None, map(_id, links))),
        )


def _logs(bodies: Mapping[str, Body]) -> Iterator[RedfishLog]:
    for path, body in bodies.items():
        if path.endswith("/Entries"):
            service = bodies.get(path.removesuffix("/Entries"), {})
            whole = sum(1 for _ in _entries(path, body))
            count = int(_number(body.get("Members@odata.count")) or whole)
            most = _number(service.get("MaxNumberOfRecords")) or 0
            is_kept = _text(service, "OverWritePolicy") == "NeverOverWrites"
            read = whole + len(_below(bodies, f"{path}/"))
            yield RedfishLog(path, max(count, read), read, full=is_kept and 0 < most <= count)


def _entries(path: str, body: Body) -> Iterator[RedfishEntry]:
    """Yield the entries in a log's collection, or the entry that ``path`` names."""
    if path.endswith("/Entries"):
        yield from (_entry(member) for member in _list(body, "Members") if len(member) > 1)
    elif path.rpartition("/")[0].endswith("/Entries"):
        yield _entry(body)


def _entry(body: Body) -> RedfishEntry:
    sensor_number = _number(body.get("SensorNumber"))
    oem = _map(body.get("Oem")).values()
    return RedfishEntry(
        id=_id(body),
        number=int(number) if (number := _text(body, "Id")).isascii() and number.isdigit() else 0,
        created=_time(_text(body, "Created")),
        severity=_text(body, "Severity"),
        form=_text(body, "EntryType"),
        message=_text(body, "Message"),
        message_id=_text(body, "MessageId"),
        sensor=(_text(body, "SensorType"), None if sensor_number is None else int(sensor_number)),
        origin=_id(_map(_map(body.get("Links")).get("OriginOfCondition"))),
        cleared=_text(body, "EntryCode") == "Deassert" or _text(body, "Severity") == "OK",
        # HPE's Integrated Management Log has Repaired in place of Resolved
        resolved=body.get("Resolved") is True or any(_map(own).get("Repaired") is True for own in oem),
    )


def _time(text: str) -> dt.datetime | None:
    try:
        at = dt.datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
        at = (at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)).astimezone(dt.timezone.utc)
    except (ValueError, OverflowError):
        return None
    return at if at.year > _UNSET_YEAR else None


def _id(body: Body) -> str:
    return _text(body, "@odata.id").replace("#/", "#").rstrip("/")


def _map(value: object) -> Body:
    return value if isinstance(value, dict) else {}


def _list(body: Body, key: str) -> list[Body]:
    value = body.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(body: Body, key: str) -> str:
    value = body.get(key)
    return " ".join(value.split())[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12
    return float(value) if is_number and isinstance(value, (int, float)) else None


def _read(answer: Completed) -> RedfishReport | Unknown:
    return NOT_CONFIGURED if answer.missing else parse_redfish(answer.out)


redfish: Probe[RedfishReport] = Probe(
    "redfish", Resources(PATHS, timeout_seconds=_SECONDS), _read, accepts=frozenset({0, 127}), cost="slow"
)
"""The BMC over Redfish, asked by the control machine with ``bmc_address`` of the inventory; nothing is changed."""
