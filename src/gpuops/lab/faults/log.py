"""Faults that the kernel log shows: Xids of NVLink, GPUs that are lost or stuck without an Xid, and what heals."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault, whole
from gpuops.lab.model import Gpu, Node
from gpuops.lab.xids import line, slot

_RESET = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
_NONE = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
_HARMLESS = (38, 40)  # sub-codes that the driver answers with no request for a reset
_WORDS = "0x00000000 0x00000000 0x00000000 0x00000000"


def _nvlink_event(node: Node, name: str, value: str) -> Node:
    gpu, sub_code = _linked(node, name), whole(value, "sub-code")
    if sub_code > 0x3F:
        raise InputError(f"{sub_code} is not a sub-code; it has six bits")
    event = f"149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x{sub_code << 20 | 0x5C6:08x} 0x00000000 {_WORDS})"
    if sub_code in _HARMLESS:
        return node.logging(_xid(gpu, event))
    return node.with_gpu(gpu.index, recovery="Reset").logging(_xid(gpu, event), _xid(gpu, f"154, {_RESET}"))


def _nvlink_ber(node: Node, name: str, _value: str) -> Node:
    gpu = _linked(node, name)
    return node.logging(_xid(gpu, f"149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 {_WORDS})"))


def _linked(node: Node, name: str) -> Gpu:
    gpu = node.gpus[int(name)]
    if not gpu.model.nvlinks:
        raise InputError(f"{gpu.model.name} has no NVLink")
    return gpu


def _xid(gpu: Gpu, text: str) -> str:
    return f"NVRM: Xid (PCI:{slot(gpu)}): {text}"


def _probe_failed(node: Node, name: str, _value: str) -> Node:
    gpu = node.gpus[int(name)]
    return node.with_gpu(gpu.index, lost=True).logging(
        f"NVRM: The NVIDIA GPU {gpu.address}",
        f"NVRM: (PCI ID: 10de:{gpu.model.device}) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    )


def _reset_required(node: Node, name: str, value: str) -> Node:
    return _reset_refused(node.with_gpu(int(name), recovery="Reset"), name, value)


def _reset_refused(node: Node, _name: str, _value: str) -> Node:
    refusal = "Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)"
    return node.logging(f"NVRM: nvAssertOkFailedNoLog: {refusal} returned from status @ kernel_channel.c:2827")


def _recovered(node: Node, name: str, _value: str) -> Node:
    gpu = node.gpus[int(name)]
    return node.logging(line(gpu, 119), _xid(gpu, f"154, {_RESET}"), _xid(gpu, f"154, {_NONE}"))


def _job_killed(node: Node, _name: str, _value: str) -> Node:
    return node.logging(*(line(gpu, 45) for gpu in node.gpus))


def _driver_reloaded(node: Node, _name: str, _value: str) -> Node:
    return node.logging(
        line(node.gpus[0], 119),
        f"NVRM: loading NVIDIA UNIX Open Kernel Module for {node.system.machine}  {node.driver.version}",
    )


def _nouveau(node: Node, _name: str, _value: str) -> Node:
    modules = "".join(f"{name} 40960 1 - Live 0x0\n" for name in ("nouveau", "drm_ttm_helper", "mlx5_core"))
    return _without_driver(node).with_file("/proc/modules", modules)


def _secure_boot(node: Node, _name: str, _value: str) -> Node:
    refusal = "Loading of module with unavailable key is rejected"
    return _without_driver(node).logging(refusal, refusal)


def _without_driver(node: Node) -> Node:
    return replace(node, driver=replace(node.driver, version=""))


FAULTS = (
    Fault(
        "gpu",
        "nvlink-event",
        "an NVLink went down: Xid 149 with this sub-code, then 154",
        _nvlink_event,
        "CODE",
        "4",
        found_by=("xid",),
    ),
    Fault("gpu", "nvlink-ber", "bit errors on an NVLink: Xid 149, not fatal", _nvlink_ber, found_by=("xid",)),
    Fault(
        "gpu",
        "probe-failed",
        "off the bus when the driver was loaded, without an Xid",
        _probe_failed,
        found_by=("gpu-lost",),
    ),
    Fault("gpu", "reset-required", "it refuses work until a reset, without an Xid", _reset_required, found_by=("xid",)),
    Fault(
        "host",
        "reset-refused",
        "the driver refused work until a reset, and no GPU asks for one",
        _reset_refused,
        found_by=("xid",),
    ),
    Fault("gpu", "recovered", "healthy: an Xid 119 whose reset is done, by Xid 154", _recovered),
    Fault(
        "host", "nouveau", "nouveau has the GPUs, so the driver is not loaded", _nouveau, found_by=("driver-loaded",)
    ),
    Fault(
        "host",
        "secure-boot",
        "the kernel refuses the driver, whose key is not enrolled",
        _secure_boot,
        found_by=("driver-loaded",),
    ),
    Fault("host", "job-killed", "healthy: Xid 45 on every GPU after a job was ended", _job_killed),
    Fault("host", "driver-reloaded", "healthy: an Xid 119, then the driver was loaded again", _driver_reloaded),
)
