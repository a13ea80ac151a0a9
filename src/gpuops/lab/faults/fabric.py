"""Faults of the NVSwitches and of the NVLink fabric."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault
from gpuops.lab.model import Node, Switches, address


def _switches(node: Node) -> Switches:
    if node.switches is None:
        raise InputError(f"a {node.machine} has no NVSwitch")
    return node.switches


def _nvswitch_missing(node: Node, _name: str, _value: str) -> Node:
    switches = _switches(node)
    return replace(node, switches=replace(switches, at=switches.at[:-1]))


def _nvswitch_lost(node: Node, _name: str, _value: str) -> Node:
    switches = _switches(node)
    lost = switches.at[1]
    node = replace(node, switches=replace(switches, lost=frozenset({lost})))
    return node.logging(f"nvidia-nvswitch1: SXid (PCI:{address(lost)}): 10003, Fatal, Host_unhandled_interrupt")


FAULTS = (
    Fault("host", "nvswitch-missing", "one NVSwitch is not on the PCI bus", _nvswitch_missing),
    Fault("host", "nvswitch-lost", "one NVSwitch fell off the bus: SXid 10003, lspci rev ff", _nvswitch_lost),
)
