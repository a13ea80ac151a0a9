"""Redfish: what a server's BMC answers over HTTPS, from the same model as ipmitool."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from gpuops.lab.model import Node
from gpuops.lab.model.bmc import Bmc
from gpuops.lab.tools.ipmitool import FACTORY
from gpuops.lab.tools.kernel_log import FAULT_SECONDS

Body = dict[str, Any]
ROOT = "/redfish/v1"
_CHASSIS, _LOG = f"{ROOT}/Chassis/1", f"{ROOT}/Systems/1/LogServices/SEL"
_GOOD = {"State": "Enabled", "Health": "OK"}
_MOST_RECORDS = 512


def resource(node: Node, path: str) -> Body | None:
    """Return the body of a resource; None if the BMC does not have it."""
    return None if node.bmc is None else _resources(node.bmc, node.booted).get(path.rstrip("/"))


@functools.lru_cache(maxsize=256)
def _resources(bmc: Bmc, booted: float) -> dict[str, Body]:
    parts = _subsystems(bmc) if bmc.subsystems else _tables(bmc)
    bodies = {
        ROOT: {"RedfishVersion": "1.15.0", **_links(ROOT, "Chassis", "Systems", "Managers")},
        **_collection(f"{ROOT}/Chassis", [("1", _links(_CHASSIS, *sorted({path.split("/")[5] for path in parts})))]),
        **_collection(f"{ROOT}/Systems", [("1", {"PowerState": "On", **_links(f"{ROOT}/Systems/1", "LogServices")})]),
        **_collection(f"{ROOT}/Managers", [("BMC", {"ManagerType": "BMC"})]),
        **_collection(f"{ROOT}/Systems/1/LogServices", [("SEL", _log(bmc))]),
        f"{_LOG}/Entries": {"Members": [*_entries(bmc, booted)]},
        **parts,
    }
    return {path: {"@odata.id": path, "Name": path.rpartition("/")[2], **body} for path, body in bodies.items()}


def _links(path: str, *names: str) -> Body:
    return {name: {"@odata.id": f"{path}/{name}"} for name in names}


def _collection(path: str, members: Sequence[tuple[str, Body]]) -> dict[str, Body]:
    links = [{"@odata.id": f"{path}/{name}"} for name, _ in members]
    return {path: {"Members": links, "Members@odata.count": len(links)}} | {f"{path}/{n}": body for n, body in members}


def _supplies(bmc: Bmc) -> Iterator[tuple[str, Body]]:
    for number in range(1, bmc.supplies + 1):
        lost = number in bmc.lost
        status = {"State": "Enabled", "Health": "Critical"} if lost else _GOOD
        power = {"LineInputStatus": "LossOfInput" if lost else "Normal", "SerialNumber": f"LAB{number:05}"}
        yield f"PS{number}", {"Name": f"PS{number} Status", "MemberId": f"PS{number}", "Status": status, **power}


def _fans(bmc: Bmc, *, percent: bool) -> Iterator[tuple[str, Body]]:
    for number in range(1, bmc.fans + 1):
        rpm = bmc.fan_rpm(number)
        new = {"SpeedPercent": {"Reading": rpm // 120, "SpeedRPM": rpm}}
        speed = new if percent else {"Reading": rpm, "ReadingUnits": "RPM"}
        yield f"FAN{number}", {"Name": f"FAN{number}", "MemberId": str(number), "Status": _GOOD, **speed}
    yield "FAN11", {"Name": "FAN11", "MemberId": "11", "Status": {"State": "Absent", "Health": None}}


def _redundancy(bmc: Bmc) -> list[Body]:
    health = "OK" if bmc.redundancy == "Fully Redundant" else "Critical"
    return [{"Name": "PS Redundancy", "Status": {"State": "Enabled", "Health": health}}] if bmc.redundancy else []


def _subsystems(bmc: Bmc) -> dict[str, Body]:
    power, thermal = f"{_CHASSIS}/PowerSubsystem", f"{_CHASSIS}/ThermalSubsystem"
    return {
        power: {"Status": _GOOD, "PowerSupplyRedundancy": _redundancy(bmc), **_links(power, "PowerSupplies")},
        **_collection(f"{power}/PowerSupplies", [*_supplies(bmc)]),
        thermal: {"Status": _GOOD, **_links(thermal, "Fans")},
        **_collection(f"{thermal}/Fans", [*_fans(bmc, percent=True)]),
    }


def _tables(bmc: Bmc) -> dict[str, Body]:
    inlet = {"Name": "Inlet Temp", "MemberId": "0", "Status": _GOOD, "ReadingCelsius": 25}
    fans = [body for _, body in _fans(bmc, percent=False)]
    return {
        f"{_CHASSIS}/Power": {"PowerSupplies": [body for _, body in _supplies(bmc)], "Redundancy": _redundancy(bmc)},
        f"{_CHASSIS}/Thermal": {"Fans": fans, "Temperatures": [inlet]},
    }


def _log(bmc: Bmc) -> Body:
    most = len(FACTORY) + len(bmc.events) if bmc.overflow else _MOST_RECORDS
    return {"MaxNumberOfRecords": most, "OverWritePolicy": "NeverOverWrites", **_links(_LOG, "Entries")}


def _entries(bmc: Bmc, booted: float) -> Iterator[Body]:
    rows = [(_factory_time(day, clock), *row) for day, clock, *row in FACTORY]
    fault_at = dt.datetime.fromtimestamp(booted + FAULT_SECONDS, dt.timezone.utc).isoformat(timespec="seconds")
    rows += [(fault_at, *(cell.strip() for cell in event.split("|"))) for event in bmc.events]
    for number, (created, sensor, event, direction) in enumerate(rows, start=1):
        is_supply, is_over = sensor.startswith("Power Supply"), direction == "Deasserted"
        yield {
            "@odata.id": f"{_LOG}/Entries/{number}",
            "Id": str(number),
            "EntryType": "SEL",
            "EntryCode": "Deassert" if is_over else "Assert",
            "Created": created,
            "Severity": "OK" if is_over else "Critical" if created == fault_at or is_supply else "Warning",
            "SensorType": "Power Supply / Converter" if is_supply else "Critical Interrupt",
            "SensorNumber": sum(sensor.encode()) % 256,
            "Message": f"{sensor}: {event}",
        }


def _factory_time(day: str, clock: str) -> str:
    """Return the time of an entry; one from before the clock was set has a time of 1970."""
    if "/" not in day:
        return "1970-01-01T00:00:23Z"
    month, day_of_month, year = day.split("/")
    return f"{year}-{month}-{day_of_month}T{clock}Z"
