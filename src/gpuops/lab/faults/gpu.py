"""GPU faults."""

from __future__ import annotations

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault, number, percent, whole
from gpuops.lab.model import Gpu, Node, Process
from gpuops.lab.topology import far_end
from gpuops.lab.xids import line


def _gpu(node: Node, name: str) -> Gpu:
    return node.gpus[int(name)]


def _lost(node: Node, name: str, _value: str) -> Node:
    gpu = _gpu(node, name)
    gone = f"NVRM: GPU {gpu.address}: GPU has fallen off the bus."
    serial = f"NVRM: GPU {gpu.address}: GPU serial number is {gpu.serial}."
    return node.with_gpu(gpu.index, lost=True).logging(line(gpu, 79), gone, serial)


def _xid(node: Node, name: str, value: str) -> Node:
    return node.logging(line(_gpu(node, name), whole(value, "Xid number", lowest=1)))


def _card(node: Node, name: str, value: str) -> Node:
    if not (value.isdecimal() and value.isascii() and len(value) == 13):
        raise InputError(f'"{value}" is not a serial number of 13 digits')
    return node.with_gpu(int(name), card=value)


def _remap_pending(node: Node, name: str, _value: str) -> Node:
    gpu = _with_row_remapper(node, name)
    rows = gpu.remapped_correctable + 1
    return node.with_gpu(gpu.index, remapped_correctable=rows, remap_pending=True).logging(line(gpu, 63))


def _rows_remapped(node: Node, name: str, value: str) -> Node:
    gpu = _with_row_remapper(node, name)
    return node.with_gpu(gpu.index, remapped_correctable=whole(value, "number of rows"))


def _remap_failed(node: Node, name: str, _value: str) -> Node:
    gpu = _with_row_remapper(node, name)
    rows = gpu.remapped_correctable + 8
    return node.with_gpu(gpu.index, remapped_correctable=rows, remap_failed=True).logging(line(gpu, 64))


def _with_row_remapper(node: Node, name: str) -> Gpu:
    gpu = _gpu(node, name)
    if not gpu.model.remap_banks:
        raise InputError(f"{gpu.model.name} has no row remapper")
    return gpu


def _ecc_uncorrectable(node: Node, name: str, value: str) -> Node:
    gpu = _gpu(node, name)
    if not gpu.model.ecc:
        raise InputError(f"{gpu.model.name} has no ECC")
    count = whole(value, "count of errors", lowest=1)
    return node.with_gpu(gpu.index, ecc_uncorrectable=gpu.ecc_uncorrectable + count).logging(line(gpu, 48))


def nvlink_down(node: Node, name: str, value: str) -> Node:
    """Return the node with a link of a GPU that is down, at both ends if the other is a GPU."""
    gpu, link = _gpu(node, name), whole(value, "link number")
    if link >= gpu.model.nvlinks:
        raise InputError(f"{gpu.model.name} has no NVLink {link}; its links are 0 to {gpu.model.nvlinks - 1}")
    for index, side in filter(None, ((gpu.index, link), far_end(node, gpu, link))):
        node = node.with_gpu(index, links_down=node.gpus[index].links_down | {side})
    return node.logging(line(gpu, 74, link=link))


def _slow(node: Node, name: str, value: str) -> Node:
    gpu = _gpu(node, name)
    if not gpu.model.nvlinks:
        raise InputError(f"{gpu.model.name} has no NVLink")
    return node.with_gpu(gpu.index, nvlink_slow_percent=percent(value))


def _slow_compute(node: Node, name: str, value: str) -> Node:
    return node.with_gpu(int(name), compute_slow_percent=percent(value))


def _slow_memory(node: Node, name: str, value: str) -> Node:
    return node.with_gpu(int(name), memory_slow_percent=percent(value))


def _slow_gpus(node: Node, _name: str, value: str) -> Node:
    for gpu in node.gpus:
        node = _slow_compute(node, str(gpu.index), value)
    return node


def _miscounts(node: Node, name: str, _value: str) -> Node:
    return node.with_gpu(int(name), miscounts=True)


def _thermal(node: Node, name: str, _value: str) -> Node:
    gpu = _gpu(node, name)
    model = gpu.model
    return node.with_gpu(
        gpu.index,
        celsius=model.slowdown_celsius + 1,
        memory_celsius=None if gpu.memory_celsius is None else model.slowdown_celsius - 3,
        state="P0",
        gen=model.gen,
        watts=round(gpu.limit_watts * 0.45, 2),
        graphics_mhz=model.max_mhz["graphics"] // 2,
        memory_mhz=model.max_mhz["memory"],
        reasons=frozenset({"hw_slowdown", "hw_thermal_slowdown"}),
        thermal_slowdown_us=93_412_771,
    )


def _power_cap(node: Node, name: str, value: str) -> Node:
    gpu, watts = _gpu(node, name), number(value, "power limit in watts")
    lowest, highest = gpu.model.min_watts, gpu.model.max_watts
    if not lowest <= watts <= highest:
        raise InputError(f"{gpu.model.name} takes a power limit of {lowest:.0f} to {highest:.0f} W, not {value}")
    return node.with_gpu(gpu.index, limit_watts=watts)


def _pcie_width(node: Node, name: str, value: str) -> Node:
    gpu, width = _gpu(node, name), whole(value, "number of PCIe lanes")
    if width not in (1, 2, 4, 8, 16):
        raise InputError(f"a PCIe link is 1, 2, 4, 8 or 16 lanes wide, not {value}")
    return node.with_gpu(gpu.index, width=width)


def _busy(node: Node, name: str, _value: str) -> Node:
    return node.with_gpu(int(name), **working(node.gpus[int(name)]))


def working(gpu: Gpu) -> dict[str, object]:
    """Return the changes on ``gpu`` while a training job runs on it."""
    process = Process(48211 + gpu.index, "/usr/bin/python3", gpu.model.memory_mib * 4 // 5)
    return {"processes": (*gpu.processes, process), **loaded(gpu)}


def loaded(gpu: Gpu) -> dict[str, object]:
    """Return the changes on ``gpu`` while it computes."""
    model = gpu.model
    return {
        "utilization_percent": 97,
        "celsius": model.idle_celsius + 31,
        "watts": round(gpu.limit_watts * 0.93, 2),
        "graphics_mhz": model.max_mhz["graphics"],
        "memory_mhz": model.max_mhz["memory"],
        "state": "P0",
        "gen": model.gen,
        "reasons": frozenset[str](),
    }


def _recovery(node: Node, name: str, value: str) -> Node:
    words = {"reset": "Reset", "reboot": "Reboot", "drain-p2p": "Drain P2P", "drain-and-reset": "Drain and Reset"}
    if value not in words:
        raise InputError(f'"{value}" is not an action; choose one of {", ".join(words)}')
    return node.with_gpu(int(name), recovery=words[value])


def _route_unhealthy(node: Node, name: str, _value: str) -> Node:
    gpu = _gpu(node, name)
    if not gpu.model.fabric:
        raise InputError(f"{gpu.model.name} is in no NVLink fabric")
    return node.with_gpu(gpu.index, route_unhealthy=True)


FAULTS = (
    Fault("gpu", "lost", "it fell off the bus: Xid 79, lspci rev ff, nvidia-smi fails", _lost, found_by=("gpu-lost",)),
    Fault("gpu", "xid", "an Xid in the kernel log", _xid, takes="NUMBER", found_by=("xid",)),
    Fault(
        "gpu",
        "remap-pending",
        "a row remapping is pending until a reset: Xid 63",
        _remap_pending,
        found_by=("row-remap-pending",),
    ),
    Fault(
        "gpu", "remap-failed", "a bank has no spare rows left: Xid 64", _remap_failed, found_by=("row-remap-failed",)
    ),
    Fault(
        "gpu",
        "ecc-uncorrectable",
        "uncorrectable ECC errors: Xid 48",
        _ecc_uncorrectable,
        "COUNT",
        "1",
        found_by=("ecc-uncorrectable", "burn-in-errors"),
    ),
    Fault(
        "gpu",
        "nvlink-down",
        "an NVLink is down: Xid 74",
        nvlink_down,
        "LINK",
        "0",
        found_by=("nvlink-links", "topology", "xid"),
    ),
    Fault(
        "gpu",
        "slow",
        "its NVLinks are slower than they report",
        _slow,
        "PERCENT",
        "35",
        found_by=("all-reduce-bandwidth",),
    ),
    Fault(
        "gpu",
        "slow-compute",
        "it multiplies more slowly than its clocks allow",
        _slow_compute,
        "PERCENT",
        "65",
        found_by=("gpu-speed",),
    ),
    Fault(
        "gpu",
        "slow-memory",
        "its memory is slower than that of the others",
        _slow_memory,
        "PERCENT",
        "20",
        found_by=("gpu-speed",),
    ),
    Fault(
        "host",
        "slow-gpus",
        "all its GPUs multiply more slowly than those of other nodes",
        _slow_gpus,
        "PERCENT",
        "20",
        found_by=("gpu-speeds-agree",),
    ),
    Fault(
        "gpu",
        "recovery",
        "it asks for a reset or reboot, and the log does not say why",
        _recovery,
        "ACTION",
        "reset",
        found_by=("recovery-action",),
    ),
    Fault(
        "gpu",
        "route-unhealthy",
        "its route through the NVLink fabric is unhealthy",
        _route_unhealthy,
        found_by=("fabric-manager",),
    ),
    Fault("gpu", "rows-remapped", "this many of its rows were remapped earlier", _rows_remapped, "COUNT", "1"),
    Fault("gpu", "card", "another card is in its slot", _card, "SERIAL", "1650000000001"),
    Fault(
        "gpu",
        "miscounts",
        "its part of an all-reduce is wrong, without any other sign",
        _miscounts,
        found_by=("all-reduce-bandwidth",),
    ),
    Fault(
        "gpu",
        "thermal",
        "it is too hot, and the hardware lowers its clocks",
        _thermal,
        found_by=("temperature", "throttle"),
    ),
    Fault("gpu", "power-cap", "power limit below the default", _power_cap, takes="WATTS", found_by=("power-limit",)),
    Fault("gpu", "pcie-width", "PCIe link trained to fewer lanes", _pcie_width, takes="LANES", found_by=("pcie-link",)),
    Fault("gpu", "busy", "a process uses it", _busy),
)
