"""Faults that keep GPUs from use, and that only the driver's log or its files in /proc explain."""

from __future__ import annotations

from dataclasses import replace

from gpuops.lab.faults.fault import Fault
from gpuops.lab.model import Gpu, Node

_NOT_PROBED = "NVRM: The NVIDIA probe routine failed for 1 device(s)."


def _no_bar(node: Node, name: str, _value: str) -> Node:
    gpu = node.gpus[int(name)]
    return _unusable(node, gpu).logging(
        "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
        f"NVRM: BAR1 is 0M @ 0x0 (PCI:{gpu.address})",
        f"nvidia {gpu.address}: probe with driver nvidia failed with error -1",
        _NOT_PROBED,
    )


def _power_cable(node: Node, name: str, _value: str) -> Node:
    gpu = node.gpus[int(name)]
    return _unusable(node, gpu).logging(
        f"NVRM: GPU {gpu.address}: GPU does not have the necessary power cables connected.",
        f"NVRM: GPU {gpu.address}: RmInitAdapter failed! (0x24:0x1c:1447)",
        f"NVRM: GPU {gpu.address}: rm_init_adapter failed, device minor number {gpu.index}",
    )


def _excluded(node: Node, name: str, _value: str) -> Node:
    return node.with_gpu(int(name), uninitialized=True, excluded=True)


def _proprietary_modules(node: Node, _name: str, _value: str) -> Node:
    for gpu in node.gpus:
        node = _unusable(node, gpu).logging(
            f"NVRM: The NVIDIA GPU {gpu.address} (PCI ID: 10de:{gpu.model.device})",
            "NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
            f"NVRM: GPU {gpu.address}: RmInitAdapter failed! (0x22:0x56:884)",
        )
    return replace(node, driver=replace(node.driver, open=False))


def _unusable(node: Node, gpu: Gpu) -> Node:
    return node.with_gpu(gpu.index, uninitialized=True)


FAULTS = (
    Fault("gpu", "no-bar", "the BIOS gave it no BAR1, so the driver refuses it", _no_bar, found_by=("gpu-count",)),
    Fault("gpu", "power-cable", "its power cable is not connected", _power_cable, found_by=("gpu-count",)),
    Fault("gpu", "excluded", "NVreg_ExcludedGpus excludes it", _excluded, found_by=("gpu-count",)),
    Fault(
        "host",
        "proprietary-modules",
        "its GPUs need the open kernel modules, and the proprietary ones are loaded",
        _proprietary_modules,
        found_by=("gpu-count",),
    ),
)
