"""Faults that nvidia-smi reports as the state of one GPU, in its own words."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Change, Fault, whole
from gpuops.lab.faults.gpu import working
from gpuops.lab.model import Gpu, Node


def _gpu(node: Node, name: str) -> Gpu:
    return node.gpus[int(name)]


def _printing(**values: str) -> Change:
    """Return a change after which a GPU prints ``values``; two underscores separate the tags of a path."""
    told = {path.replace("__", "/"): text for path, text in values.items()}

    def change(node: Node, name: str, _value: str) -> Node:
        return node.with_gpu(int(name), prints={**_gpu(node, name).prints, **told})

    return change


def _with_ecc(change: Change) -> Change:
    def checked(node: Node, name: str, value: str) -> Node:
        if not _gpu(node, name).model.ecc:
            raise InputError(f"{_gpu(node, name).model.name} has no ECC")
        return change(node, name, value)

    return checked


def _repair_pending(node: Node, name: str, _value: str) -> Node:
    printing = _printing(ecc_errors__channel_repair_pending="Yes")
    return printing(node.with_gpu(int(name), recovery="Reset"), name, "")


def _ecc_off(node: Node, name: str, _value: str) -> Node:
    return _printing(
        ecc_mode__current_ecc="Disabled",
        ecc_mode__pending_ecc="Disabled",
        **{f"ecc_errors__{scope}__{kind}": "N/A" for scope in ("volatile", "aggregate") for kind in _ECC_KINDS},
    )(node, name, "")


_ECC_KINDS = (
    "sram_correctable",
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "dram_correctable",
    "dram_uncorrectable",
    "sram_threshold_exceeded",
)


def _ecc_corrected(node: Node, name: str, value: str) -> Node:
    count = str(whole(value, "count of errors", lowest=1))
    both = {"ecc_errors__volatile__dram_correctable": count, "ecc_errors__aggregate__dram_correctable": count}
    return _printing(**both)(node, name, "")


def _compute_mode(node: Node, name: str, value: str) -> Node:
    if value not in _COMPUTE_MODES:
        raise InputError(f'"{value}" is not a compute mode; choose one of {", ".join(_COMPUTE_MODES)}')
    return _printing(compute_mode=value)(node, name, "")


_COMPUTE_MODES = ("Prohibited", "Exclusive_Process")


def _application_clocks(node: Node, name: str, value: str) -> Node:
    mhz = whole(value, "clock in MHz", lowest=1)
    return _printing(applications_clocks__graphics_clock=f"{mhz} MHz")(node, name, "")


def _locked_clocks(node: Node, name: str, value: str) -> Node:
    """Lock the clocks of a GPU, and let a job run on all of them: an idle GPU does not show it."""
    for gpu in node.gpus:
        if gpu.reasons == {"gpu_idle"}:
            node = node.with_gpu(gpu.index, **working(gpu))
    return node.with_gpu(int(name), graphics_mhz=whole(value, "clock in MHz", lowest=1))


def _memory_hot(node: Node, name: str, _value: str) -> Node:
    gpu = _gpu(node, name)
    if gpu.memory_celsius is None:
        raise InputError(f"{gpu.model.name} does not report the temperature of its memory")
    return node.with_gpu(gpu.index, memory_celsius=(gpu.model.memory_max_celsius or _HOT_MEMORY) + 2)


_HOT_MEMORY = 95


def _stray_memory(node: Node, name: str, value: str) -> Node:
    return node.with_gpu(int(name), stray_mib=whole(value, "amount of memory in MiB", lowest=1))


def _init_failed(node: Node, name: str, _value: str) -> Node:
    gpu = _gpu(node, name)
    return node.with_gpu(gpu.index, uninitialized=True).logging(
        f"NVRM: GPU {gpu.address}: RmInitAdapter failed! (0x62:0xffff:1863)",
        f"NVRM: GPU {gpu.address}: rm_init_adapter failed, device minor number {gpu.index}",
    )


def _other_model(node: Node, name: str, value: str) -> Node:
    gpu = _gpu(node, name)
    return node.with_gpu(gpu.index, model=replace(gpu.model, name=value))


def _mig(node: Node, name: str, _value: str) -> Node:
    if not _gpu(node, name).model.mig:
        raise InputError(f"{_gpu(node, name).model.name} has no MIG mode")
    return node.with_gpu(int(name), mig=True)


def _c2c_off(node: Node, name: str, _value: str) -> Node:
    if not _gpu(node, name).model.memory_nodes:
        raise InputError(f"{_gpu(node, name).model.name} has no link to the CPU but PCIe")
    return _printing(c2c_mode="Disabled")(node, name, "")


def _less_memory(node: Node, _name: str, _value: str) -> Node:
    for gpu in node.gpus:
        if not gpu.model.name.rpartition("GB")[0]:
            raise InputError(f"the name {gpu.model.name} does not show how much memory it has")
        less = f"{gpu.model.memory_mib * 4 // 5} MiB"
        node = _printing(fb_memory_usage__total=less)(node, str(gpu.index), "")
    return node


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
    Fault(
        "gpu",
        "sram-threshold",
        "more uncorrectable SRAM errors over its life than NVIDIA tolerates",
        _with_ecc(_printing(ecc_errors__aggregate__sram_threshold_exceeded="Yes")),
        found_by=("memory-unrepairable",),
    ),
    Fault(
        "gpu",
        "repair-pending",
        "the repair of a memory channel is pending until a reset",
        _with_ecc(_repair_pending),
        found_by=("repair-pending",),
    ),
    Fault("gpu", "ecc-off", "ECC is switched off", _with_ecc(_ecc_off), found_by=("ecc-mode",)),
    Fault(
        "gpu",
        "ecc-off-pending",
        "ECC will be off after the next reboot",
        _with_ecc(_printing(ecc_mode__pending_ecc="Disabled")),
        found_by=("ecc-mode",),
    ),
    Fault(
        "gpu",
        "ecc-corrected",
        "corrected ECC errors since the last reset",
        _with_ecc(_ecc_corrected),
        "COUNT",
        "96000000",
        found_by=("ecc-corrected",),
    ),
    Fault(
        "gpu",
        "compute-mode",
        "its compute mode is not the default",
        _compute_mode,
        takes="MODE",
        default="Prohibited",
        found_by=("compute-mode",),
    ),
    Fault(
        "gpu",
        "application-clocks",
        "its application clocks were set lower",
        _application_clocks,
        takes="MHZ",
        default="1200",
        found_by=("gpu-clocks",),
    ),
    Fault(
        "gpu",
        "locked-clocks",
        "its clocks are locked, and lower than the others' at work",
        _locked_clocks,
        "MHZ",
        "1200",
        found_by=("gpu-clocks",),
    ),
    Fault("gpu", "memory-hot", "its memory is too hot, the chip is not", _memory_hot, found_by=("temperature",)),
    Fault(
        "gpu",
        "stray-memory",
        "memory in use, and no process holds it",
        _stray_memory,
        "MIB",
        "30000",
        found_by=("stray-memory",),
    ),
    Fault(
        "gpu", "init-failed", "the driver cannot start it: nvidia-smi lacks it", _init_failed, found_by=("gpu-count",)
    ),
    Fault(
        "gpu",
        "inforom",
        "its infoROM is corrupted: nvidia-smi warns and exits with 14",
        lambda node, name, _value: node.with_gpu(int(name), inforom_corrupted=True),
        found_by=("smi-errors",),
    ),
    Fault(
        "gpu",
        "other-model",
        "it is of another model than the others",
        _other_model,
        "PRODUCT",
        "NVIDIA A40",
        ("gpu-model",),
    ),
    Fault(
        "gpu",
        "bar1-small",
        "its BAR1 is smaller than the others'",
        _printing(bar1_memory_usage__total="256 MiB"),
        found_by=("gpus-agree",),
    ),
    Fault("gpu", "c2c-off", "its NVLink-C2C to the CPU is off", _c2c_off, found_by=("gpus-agree",)),
    Fault(
        "host", "gpus-less-memory", "all its GPUs lack a fifth of their memory", _less_memory, found_by=("gpu-model",)
    ),
    Fault("gpu", "mig", "it is in MIG mode without an instance: no job can use it", _mig, found_by=("compute-mode",)),
    Fault("gpu", "unreadable", "nvidia-smi reads errors in place of its sensors and links", _unreadable),
)
