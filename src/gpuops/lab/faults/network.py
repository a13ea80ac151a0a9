"""Faults on the way from a GPU to the network: ports, PCIe links above an adapter, modules and counters."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault, whole
from gpuops.lab.model import Nic, Node
from gpuops.lab.tools.infiniband import PHYSICAL_STATES
from gpuops.lab.tools.lspci import GIGATRANSFERS

_BEHIND_A_SWITCH = 5  # host bridge, root port, the switch's two ports, adapter
_SPEEDS = {"2.5": 2.0, "5.0": 4.0, "8.0": 7.876, "16.0": 15.753, "32.0": 31.507}  # with Gb/s of a lane in the kernel
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


def _uplink(node: Node, name: str, value: str) -> Node:
    """Return a node whose link between the root port and the switch above an adapter trained one generation down."""
    nic = _nic(node, name)
    parts = nic.at.split("/")
    if len(parts) < _BEHIND_A_SWITCH:
        raise InputError(f"{name} is not behind a PCIe switch")
    if value not in _SPEEDS:
        raise InputError(f'"{value}" is not a PCIe speed in GT/s; use one of {", ".join(_SPEEDS)}')
    for depth in (2, 3):  # both ends of the link report it
        node = node.with_file(f"/sys/devices/{'/'.join(parts[:depth])}/current_link_speed", f"{value} GT/s PCIe")
    able = f"{GIGATRANSFERS[nic.generation]}.0"
    have, could = (f"{_SPEEDS[gts] * nic.width:.3f} Gb/s" for gts in (value, able))
    lanes = f"GT/s PCIe x{nic.width} link"
    limited = f"{have} available PCIe bandwidth, limited by {value} {lanes} at {parts[1]}"
    return node.logging(f"mlx5_core {nic.address}: {limited} (capable of {could} with {able} {lanes})")


def _no_gpudirect(node: Node, _name: str, _value: str) -> Node:
    return replace(node, peermem=False, driver=replace(node.driver, open=False))


def _no_peermem(node: Node, _name: str, _value: str) -> Node:
    return replace(node, peermem=False)


def _iommu(node: Node, _name: str, _value: str) -> Node:
    return replace(node, cmdline="intel_iommu=on")


def _peermem_error(node: Node, _name: str, value: str) -> Node:
    where = "nvidia-peermem nv_get_p2p_free_callback:127"
    line = f"{where} ERROR detected invalid context, skipping further processing"
    return node.logging(*[line] * whole(value, "number of errors", lowest=1))


def _hung(node: Node, name: str, _value: str) -> Node:
    at = f"mlx5_core {_nic(node, name).address}"
    return node.logging(
        f"{at}: poll_health:852:(pid 0): device's health compromised - reached miss count",
        f"{at}: print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware error",
    )


def _hot_module(node: Node, name: str, _value: str) -> Node:
    at = f"mlx5_core {_nic(node, name).address}"
    return node.logging(f"{at}: Port module event[error]: module 0, Cable error, High Temperature")


def _flapped(node: Node, name: str, value: str) -> Node:
    nic = _nic(node, name)
    at = f"mlx5_core {nic.address} {nic.netdev}"
    return node.logging(*[f"{at}: Link down", f"{at}: Link up"] * whole(value, "number of times", lowest=1))


def _rejected(node: Node, name: str, value: str) -> Node:
    at = f"mlx5_core {_nic(node, name).address}: mlx5_cmd_out_err:838:(pid 1441871)"
    why = "status bad operation(0x2), syndrome (0x9a6171), err(-22)"
    line = f"{at}: ACCESS_REG(0x805) op_mod(0x1) failed, {why}"
    return node.logging(*[line] * whole(value, "number of lines", lowest=1))


def _retrained(node: Node, name: str, value: str) -> Node:
    if not node.gpus[int(name)].model.nvlinks:
        raise InputError(f"gpu{name} has no NVLink")
    return node.with_gpu(int(name), link_recoveries={14 % node.gpus[int(name)].model.nvlinks: whole(value, "count")})


def _acs(node: Node, _name: str, _value: str) -> Node:
    """Return a node with ACS on at every bridge, as many BIOSes set it for guests."""
    paths = [device.split("/") for device in (*(g.path for g in node.gpus), *(n.at for n in node.nics))]
    return replace(node, acs=frozenset(at for path in paths for at in path[1:-1]))


def _weak_optic(node: Node, name: str, _value: str) -> Node:
    return node.with_nic(name, weak=True)


def _marked(node: Node, name: str, value: str) -> Node:
    return node.with_nic(name, traffic_class=whole(value, "traffic class"))


FAULTS = (
    Fault(
        "nic",
        "traffic-class",
        "its RoCE packets have another traffic class",
        _marked,
        "CLASS",
        "106",
        found_by=("roce-priority",),
    ),
    Fault(
        "nic", "weak-optic", "its optic receives too little light on one lane", _weak_optic, found_by=("transceivers",)
    ),
    Fault("host", "acs", "ACS is on at all PCIe bridges", _acs, found_by=("pcie-acs",)),
    Fault(
        "gpu",
        "nvlink-retrained",
        "one of its NVLinks retrained COUNT times",
        _retrained,
        "COUNT",
        "505",
        found_by=("nvlink-errors",),
    ),
    Fault(
        "nic",
        "phys-state",
        "its port is in this physical state",
        _physical,
        "PHYSICAL",
        "LinkErrorRecovery",
        found_by=("ib-ports",),
    ),
    Fault(
        "nic", "one-lane", "the link has one lane and still reports its full rate", _one_lane, found_by=("ib-ports",)
    ),
    Fault(
        "nic",
        "uplink-speed",
        "the PCIe switch above it trained to a lower speed",
        _uplink,
        "GTS",
        "16.0",
        found_by=("nic-pcie",),
    ),
    Fault("nic", "hung", "its firmware no longer answers, by the kernel log", _hung, found_by=("nic-log",)),
    Fault("nic", "hot-module", "its optic is too hot, by the kernel log", _hot_module, found_by=("nic-log",)),
    Fault(
        "nic", "flapped", "its link went down and came back COUNT times", _flapped, "COUNT", "6", found_by=("nic-log",)
    ),
    Fault("nic", "rejected-reads", "harmless lines about rejected register reads", _rejected, "COUNT", "40"),
    Fault("host", "no-peermem", "nvidia-peermem is not loaded", _no_peermem, found_by=("gpudirect-rdma",)),
    Fault(
        "host",
        "no-gpudirect",
        "no nvidia-peermem, and the proprietary driver has no dma-buf",
        _no_gpudirect,
        found_by=("gpudirect-rdma",),
    ),
    Fault("host", "iommu", "the IOMMU translates addresses", _iommu, found_by=("gpudirect-rdma",)),
    Fault(
        "host",
        "peermem-error",
        "nvidia-peermem logs an invalid context",
        _peermem_error,
        "COUNT",
        "1",
        found_by=("gpudirect-rdma",),
    ),
)
