"""Faults of the persistence mode, which keeps the driver loaded on GPUs that no process uses."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault
from gpuops.lab.model import Node, Service


def _off(node: Node, name: str, _value: str) -> Node:
    gpu = _persistent(node).gpus[int(name)]
    return node.with_gpu(gpu.index, prints={**gpu.prints, "persistence_mode": "Disabled"})


def _daemon_failed(node: Node, name: str, value: str) -> Node:
    died = _daemon_died(node, name, value)
    return replace(died, driver=replace(died.driver, persistence=False))


def _daemon_died(node: Node, _name: str, _value: str) -> Node:
    failed = Service("failed", "failed", "enabled")
    return replace(_persistent(node), services={**node.services, "nvidia-persistenced": failed})


def _persistent(node: Node) -> Node:
    if not node.driver.persistence:
        raise InputError(f"{node.machine} does not use persistence mode")
    return node


FAULTS = (
    Fault("gpu", "persistence-off", "its persistence mode is off", _off, found_by=("persistence-mode",)),
    Fault(
        "host",
        "persistenced-failed",
        "persistence mode is off on all GPUs, because its daemon failed",
        _daemon_failed,
        found_by=("persistence-mode",),
    ),
    Fault(
        "host",
        "persistenced-died",
        "its daemon failed after it had set persistence mode",
        _daemon_died,
        found_by=("persistence-mode",),
    ),
)
