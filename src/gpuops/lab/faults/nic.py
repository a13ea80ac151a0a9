"""RDMA device faults."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault, percent, whole
from gpuops.lab.model import Nic, Node


def _nic(node: Node, name: str) -> Nic:
    return next(n for n in node.nics if n.name == name)


def _port_down(node: Node, name: str, _value: str) -> Node:
    nic = _nic(node, name)
    message = f"mlx5_core {nic.address} {nic.netdev}: Link down"
    return node.with_nic(name, up=False).logging(message)


def _rate(node: Node, name: str, value: str) -> Node:
    return node.with_nic(name, gbps=whole(value, "rate in Gbit/s", lowest=1))


def _slow(node: Node, name: str, value: str) -> Node:
    return node.with_nic(name, slow_percent=percent(value))


def _slow_duplex(node: Node, name: str, value: str) -> Node:
    return node.with_nic(name, slow_duplex_percent=percent(value))


def _held_back(node: Node, name: str, value: str) -> Node:
    return node.with_nic(name, held_back_percent=percent(value))


def _flaps(node: Node, name: str, _value: str) -> Node:
    return node.with_nic(name, flaps=True)


def _lanes(node: Node, name: str, value: str) -> Node:
    width = whole(value, "number of PCIe lanes")
    if width not in (1, 2, 4, 8, 16):
        raise InputError(f"a PCIe link has 1, 2, 4, 8 or 16 lanes, not {width}")
    return node.with_nic(name, lanes=width)


def _roce_reset(node: Node, name: str, _value: str) -> Node:
    return node.with_nic(name, traffic_class=0, lossless=frozenset(), trust="pcp", ecn=frozenset())


def _not_started(node: Node, name: str, _value: str) -> Node:
    nic = next(n for n in node.nics if n.name == name)
    rest = tuple(other for other in node.nics if other.name != name)
    return replace(node, nics=rest).logging(
        f"mlx5_core {nic.address}: probe_one:1977:(pid 812): mlx5_init_one failed with error code -16",
        f"mlx5_core: probe of {nic.address} failed with error -16",
    )


FAULTS = (
    Fault("nic", "port-down", "the port has no link", _port_down, found_by=("ib-ports",)),
    Fault(
        "nic",
        "not-started",
        "its firmware was not ready, so the driver gave it up",
        _not_started,
        found_by=("ib-ports",),
    ),
    Fault("nic", "rate", "the port trained to another rate", _rate, takes="GBPS", found_by=("ib-ports",)),
    Fault(
        "nic",
        "slow",
        "slower than it reports; symbol errors increase in use",
        _slow,
        "PERCENT",
        "35",
        found_by=("all-reduce-bandwidth",),
    ),
    Fault(
        "nic",
        "roce-reset",
        "its RoCE settings are those of a new adapter: no PFC, no ECN",
        _roce_reset,
        found_by=("roce-settings",),
    ),
    Fault(
        "nic",
        "slow-duplex",
        "slower than it reports when it sends and receives at once",
        _slow_duplex,
        "PERCENT",
        "35",
        found_by=("all-reduce-bandwidth",),
    ),
    Fault(
        "nic",
        "held-back",
        "slow because the network pauses it; no errors",
        _held_back,
        "PERCENT",
        "35",
        found_by=("all-reduce-bandwidth",),
    ),
    Fault("nic", "flaps", "its link goes down for a moment in each use", _flaps, found_by=("all-reduce-bandwidth",)),
    Fault("nic", "pcie-width", "PCIe link trained to fewer lanes", _lanes, "LANES", found_by=("nic-pcie",)),
)
