"""Faults that show only beside other hosts: another kernel, firmware, BIOS or package."""

from __future__ import annotations

from dataclasses import replace

from gpuops.lab.faults.fault import Fault, whole
from gpuops.lab.model import Node


def _kernel(node: Node, _name: str, value: str) -> Node:
    return replace(node, system=replace(node.system, kernel=value))


def _bios(node: Node, _name: str, value: str) -> Node:
    return replace(node, system=replace(node.system, bios=value))


def _parameter(node: Node, _name: str, value: str) -> Node:
    return replace(node, cmdline=f"{node.cmdline} {value}")


def _processors(node: Node, _name: str, value: str) -> Node:
    return node.with_file("/sys/devices/system/cpu/online", f"0-{whole(value, 'number of processors', lowest=1) - 1}")


def _vbios(node: Node, name: str, value: str) -> Node:
    gpu = node.gpus[int(name)]
    return node.with_gpu(gpu.index, model=replace(gpu.model, vbios=value))


def _firmware(node: Node, name: str, value: str) -> Node:
    return node.with_nic(name, firmware=value)


def _package(node: Node, _name: str, value: str) -> Node:
    return replace(node, packages={**node.packages, "libnccl2": value})


FAULTS = (
    Fault(
        "host",
        "kernel-skew",
        "another kernel than its peers",
        _kernel,
        "VERSION",
        "5.15.0-91-generic",
        found_by=("versions-agree",),
    ),
    Fault(
        "host",
        "parameter-skew",
        "one more kernel parameter than its peers",
        _parameter,
        "WORD",
        "iommu=on",
        found_by=("versions-agree",),
    ),
    Fault(
        "host",
        "processors-offline",
        "only so many of its processors are online",
        _processors,
        "COUNT",
        "64",
        found_by=("versions-agree",),
    ),
    Fault("host", "bios-skew", "another BIOS than its peers", _bios, "VERSION", "0.9.1", found_by=("versions-agree",)),
    Fault(
        "host",
        "nccl-skew",
        "another NCCL than its peers",
        _package,
        "VERSION",
        "2.18.5-1+cuda12.2",
        found_by=("packages-agree",),
    ),
    Fault(
        "gpu",
        "vbios-skew",
        "another VBIOS than its peers",
        _vbios,
        "VERSION",
        "96.00.30.00.01",
        found_by=("versions-agree",),
    ),
    Fault(
        "nic",
        "firmware-skew",
        "another firmware than its peers",
        _firmware,
        "VERSION",
        "28.35.2000",
        found_by=("versions-agree",),
    ),
)
