"""Power faults: how a workstation was wired, and what a supply or a fan of a server does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault, whole
from gpuops.lab.model import Bmc, Node


def _pigtail(node: Node, name: str, _value: str) -> Node:
    cables = [{**cable, "independent": cable["independent"] and cable["gpu"] != int(name)} for cable in _cables(node)]
    return replace(node, power={**node.power, "gpu_cables": cables})


def _psu(node: Node, _name: str, value: str) -> Node:
    _cables(node)
    supply = {**node.power["psus"][0], "watts": whole(value, "number of watts", lowest=1)}
    return replace(node, power={**node.power, "psus": [supply]})


def _cables(node: Node) -> list[dict[str, Any]]:
    if not node.power:
        raise InputError(f"{node.machine} was not built by its owner")
    cables: list[dict[str, Any]] = node.power["gpu_cables"]
    return cables


def _supply_lost(node: Node, _name: str, value: str) -> Node:
    bmc, number = _bmc(node), whole(value, "number of a power supply", lowest=1)
    if number > bmc.supplies:
        raise InputError(f"{node.machine} has power supplies 1 to {bmc.supplies}")
    lost = bmc.lost | {number}
    left = bmc.redundancy if bmc.supplies - len(lost) > bmc.supplies // 2 else "Redundancy Lost"
    events = (*bmc.events, f"Power Supply PS{number} Status | Power Supply AC lost | Asserted")
    return replace(node, bmc=replace(bmc, lost=lost, redundancy=left, events=events))


def _fan(node: Node, _name: str, value: str) -> Node:
    bmc, number = _bmc(node), whole(value, "number of a fan", lowest=1)
    if number > bmc.fans:
        raise InputError(f"{node.machine} has fans 1 to {bmc.fans}")
    return replace(node, bmc=replace(bmc, standing=bmc.standing | {number}))


def _bus_error(node: Node, _name: str, _value: str) -> Node:
    bmc = _bmc(node)
    event = "Critical Interrupt #0xff | Bus Fatal Error | Asserted"
    return replace(node, bmc=replace(bmc, events=(*bmc.events, event)))


def _processor_error(node: Node, _name: str, _value: str) -> Node:
    bmc = _bmc(node)
    event = "Processor CPU_CATERR | IERR | Asserted"
    return replace(node, bmc=replace(bmc, events=(*bmc.events, event)))


def _log_full(node: Node, _name: str, _value: str) -> Node:
    return replace(node, bmc=replace(_bmc(node), overflow=True))


def _login(node: Node, _name: str, _value: str) -> Node:
    return replace(node, bmc=replace(_bmc(node), refuses_login=True))


def _bmc(node: Node) -> Bmc:
    if node.bmc is None:
        raise InputError(f"{node.machine} has no BMC")
    return node.bmc


FAULTS = (
    Fault("gpu", "pigtail", "both its power plugs are on one cable", _pigtail, found_by=("power-supply",)),
    Fault("host", "psu", "the power supply has only this many watts", _psu, takes="WATTS", found_by=("power-supply",)),
    Fault(
        "host",
        "psu-lost",
        "this power supply has no input; if half have none, redundancy is lost",
        _supply_lost,
        "NUMBER",
        found_by=("redfish", "bmc"),
    ),
    Fault("host", "fan-stopped", "this fan does not turn", _fan, takes="NUMBER", found_by=("redfish", "bmc")),
    Fault("host", "bus-error", "a fatal bus error in the BMC's event log", _bus_error, found_by=("redfish", "bmc")),
    Fault(
        "host",
        "processor-error",
        "an IERR of a processor in the BMC's event log",
        _processor_error,
        found_by=("redfish", "bmc"),
    ),
    Fault("host", "sel-full", "the BMC's event log is full", _log_full, found_by=("redfish", "bmc")),
    Fault("host", "bmc-login", "the BMC refuses the login over Redfish", _login),
)
