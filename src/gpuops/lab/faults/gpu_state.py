"""Faults that nvidia-smi reports as the state of one GPU, in its own words."""

from __future__ import annotations

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault
from gpuops.lab.model import Gpu, Node


def _gpu(node: Node, name: str) -> Gpu:
    return node.gpus[int(name)]


def _mig(node: Node, name: str, _value: str) -> Node:
    if not _gpu(node, name).model.mig:
        raise InputError(f"a {_gpu(node, name).model.name} has no MIG mode")
    return node.with_gpu(int(name), mig=True)


def _unreadable(node: Node, name: str, _value: str) -> Node:
    """Make most sensors of a GPU answer with an error, as a GPU does whose system processor stopped."""
    failing = {
        "temperature/gpu_temp": "Unknown Error",
        "temperature/gpu_temp_tlimit": "Unknown Error",
        "temperature/memory_temp": "Unknown Error",
        "gpu_power_readings/average_power_draw": "Unknown Error",
        "gpu_power_readings/instant_power_draw": "Unknown Error",
        "utilization/gpu_util": "Unknown Error",
        "fan_speed": "ERR!",
    }
    error = "NVML: Unable to retrieve NVLink information: Unknown Error"
    gpu = _gpu(node, name)
    return node.with_gpu(gpu.index, prints={**gpu.prints, **failing}, nvlink_error=error)


FAULTS = (
    Fault("gpu", "mig", "in MIG mode: its NVLinks are off (no fault)", _mig),
    Fault("gpu", "unreadable", "nvidia-smi reads errors in place of its sensors and links", _unreadable),
)
