"""Faults on the way from a GPU to the network: ports, PCIe links above an adapter, modules and counters."""

from __future__ import annotations

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault
from gpuops.lab.model import Nic, Node
from gpuops.lab.tools.infiniband import PHYSICAL_STATES

_UP = ("LinkUp", "LinkErrorRecovery")


def _nic(node: Node, name: str) -> Nic:
    return next(n for n in node.nics if n.name == name)


def _physical(node: Node, name: str, value: str) -> Node:
    if value not in PHYSICAL_STATES:
        raise InputError(f'"{value}" is not a physical state; use one of {", ".join(PHYSICAL_STATES)}')
    return node.with_nic(name, physical=value, up=value in _UP)


def _one_lane(node: Node, name: str, _value: str) -> Node:
    """Return a node whose rate file contradicts itself: one lane, and the rate of four."""
    return node.with_nic(name, width_word="1X NDR")


FAULTS = (
    Fault("nic", "phys-state", "the port's physical state", _physical, "PHYSICAL", "LinkErrorRecovery"),
    Fault("nic", "one-lane", "the link has one lane and still reports its full rate", _one_lane),
)
