"""``nvidia-smi --query-gpu`` and ``--query-compute-apps``: CSV of the same entries that ``-q`` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpuops.lab.identity import HOST, STAMP
from gpuops.lab.model import Gpu, Node
from gpuops.lab.tools.answer import Answer
from gpuops.lab.tools.nvidia_smi.entry import Entry
from gpuops.lab.tools.nvidia_smi.record import entries
from gpuops.lab.tools.nvidia_smi.table import reason_mask

# query field -> path of tags in -q -x
_PATHS = {
    "name": "product_name",
    "gpu_name": "product_name",
    "serial": "serial",
    "gpu_serial": "serial",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "vbios_version": "vbios_version",
    "persistence_mode": "persistence_mode",
    "display_active": "display_active",
    "compute_mode": "compute_mode",
    "pstate": "performance_state",
    "fan.speed": "fan_speed",
    "gsp_firmware_version": "gsp_firmware_version",
    "inforom.img": "inforom_version/img_version",
    "inforom.oem": "inforom_version/oem_object",
    "inforom.ecc": "inforom_version/ecc_object",
    "gpu_recovery_action": "gpu_recovery_action",
    "pci.bus_id": "pci/pci_bus_id",
    "gpu_bus_id": "pci/pci_bus_id",
    "pci.domain": "pci/pci_domain",
    "pci.bus": "pci/pci_bus",
    "pci.device": "pci/pci_device",
    "pci.device_id": "pci/pci_device_id",
    "pci.sub_device_id": "pci/pci_sub_system_id",
    "pcie.link.gen.current": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pcie.link.gen.gpucurrent": "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen",
    "pcie.link.gen.max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pcie.link.gen.gpumax": "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
    "pcie.link.gen.hostmax": "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",
    "pcie.link.width.current": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pcie.link.width.max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "memory.total": "fb_memory_usage/total",
    "memory.reserved": "fb_memory_usage/reserved",
    "memory.used": "fb_memory_usage/used",
    "memory.free": "fb_memory_usage/free",
    "utilization.gpu": "utilization/gpu_util",
    "utilization.memory": "utilization/memory_util",
    "temperature.gpu": "temperature/gpu_temp",
    "temperature.gpu.tlimit": "temperature/gpu_temp_tlimit",
    "temperature.memory": "temperature/memory_temp",
    "power.limit": "gpu_power_readings/requested_power_limit",
    "enforced.power.limit": "gpu_power_readings/current_power_limit",
    "power.default_limit": "gpu_power_readings/default_power_limit",
    "power.min_limit": "gpu_power_readings/min_power_limit",
    "power.max_limit": "gpu_power_readings/max_power_limit",
    "clocks.current.graphics": "clocks/graphics_clock",
    "clocks.gr": "clocks/graphics_clock",
    "clocks.current.sm": "clocks/sm_clock",
    "clocks.sm": "clocks/sm_clock",
    "clocks.current.memory": "clocks/mem_clock",
    "clocks.mem": "clocks/mem_clock",
    "clocks.max.graphics": "max_clocks/graphics_clock",
    "clocks.max.sm": "max_clocks/sm_clock",
    "clocks.max.memory": "max_clocks/mem_clock",
    "ecc.mode.current": "ecc_mode/current_ecc",
    "ecc.mode.pending": "ecc_mode/pending_ecc",
    "mig.mode.current": "mig_mode/current_mig",
    "mig.mode.pending": "mig_mode/pending_mig",
    "ecc.errors.corrected.volatile.dram": "ecc_errors/volatile/dram_correctable",
    "ecc.errors.corrected.volatile.total": "ecc_errors/volatile/dram_correctable",
    "ecc.errors.corrected.aggregate.total": "ecc_errors/aggregate/dram_correctable",
    "ecc.errors.uncorrected.volatile.dram": "ecc_errors/volatile/dram_uncorrectable",
    "ecc.errors.uncorrected.volatile.total": "ecc_errors/volatile/dram_uncorrectable",
    "ecc.errors.uncorrected.aggregate.dram": "ecc_errors/aggregate/dram_uncorrectable",
    "ecc.errors.uncorrected.aggregate.total": "ecc_errors/aggregate/dram_uncorrectable",
    "retired_pages.pending": "retired_pages/pending_retirement",
    "remapped_rows.correctable": "remapped_rows/remapped_row_corr",
    "remapped_rows.uncorrectable": "remapped_rows/remapped_row_unc",
    "remapped_rows.pending": "remapped_rows/remapped_row_pending",
    "remapped_rows.failure": "remapped_rows/remapped_row_failure",
    "fabric.state": "fabric/state",
    "fabric.status": "fabric/status",
    "fabric.cliqueId": "fabric/cliqueId",
    "fabric.clusterUuid": "fabric/clusterUuid",
}
for _reason in (
    "gpu_idle applications_clocks_setting sw_power_cap hw_slowdown hw_thermal_slowdown hw_power_brake_slowdown "
    "sw_thermal_slowdown sync_boost"
).split():
    for _word in ("event", "throttle"):
        _PATHS[f"clocks_{_word}_reasons.{_reason}"] = f"clocks_event_reasons/clocks_event_reason_{_reason}"

_DIRECT: dict[str, Callable[[Node, Gpu], str]] = {
    "timestamp": lambda _node, _gpu: STAMP,
    "driver_version": lambda node, _gpu: node.driver.userspace,
    "count": lambda node, _gpu: str(len(node.visible)),
    "index": lambda _node, gpu: str(gpu.index),
    "compute_cap": lambda _node, gpu: gpu.model.compute_capability,
    "hostname": lambda _node, _gpu: HOST,
    "power.draw": lambda _node, gpu: f"{gpu.watts:.2f} W",
    "power.draw.average": lambda _node, gpu: f"{gpu.watts:.2f} W",
    "power.draw.instant": lambda _node, gpu: f"{gpu.watts:.2f} W",
    "clocks_event_reasons.active": lambda _node, gpu: reason_mask(gpu),
    "clocks_throttle_reasons.active": lambda _node, gpu: reason_mask(gpu),
}
FIELDS = frozenset(_PATHS) | frozenset(_DIRECT)
_UNIT_OF = {
    "fan.speed": "%",
    "utilization.": "%",
    "memory.": "MiB",
    "used_memory": "MiB",
    "used_gpu_memory": "MiB",
    "power.": "W",
    "enforced.power.": "W",
    "clocks.": "MHz",
}


def gpus(node: Node, fields: Sequence[str], form: Sequence[str]) -> Answer:
    """Return the output of ``--query-gpu``; an unknown field is refused in nvidia-smi's words."""
    for name in fields:
        if name not in FIELDS:
            return Answer(out=f'Field "{name}" is not a valid field to query.\n\n', code=2)
    rows = [[_value(node, gpu, name) for name in fields] for gpu in node.visible]
    return Answer(out=_csv(fields, rows, form))


def compute_apps(node: Node, fields: Sequence[str], form: Sequence[str]) -> Answer:
    """Return the output of ``--query-compute-apps``, one line per process."""
    own = {"pid", "process_name", "name", "used_memory", "used_gpu_memory"}
    for name in fields:
        if name not in own | FIELDS:
            return Answer(out=f'Field "{name}" is not a valid field to query.\n\n', code=2)
    rows = []
    for gpu in node.visible:
        for process in gpu.processes:
            memory = f"{process.memory_mib} MiB"
            values = {"pid": str(process.pid), "process_name": process.name, "name": process.name}
            values |= {"used_memory": memory, "used_gpu_memory": memory}
            rows.append([values.get(name) or _value(node, gpu, name) for name in fields])
    return Answer(out=_csv(fields, rows, form))


def _value(node: Node, gpu: Gpu, name: str) -> str:
    if name in _DIRECT:
        return _DIRECT[name](node, gpu)
    value = _at(entries(node, gpu), _PATHS[name].split("/"))
    if name.startswith("pcie.link.width"):
        return value.removesuffix("x")
    if name.startswith("temperature"):
        return value.removesuffix(" C")
    return value if value not in ("N/A", "") else "[N/A]"


def _at(sections: tuple[Entry, ...], path: Sequence[str]) -> str:
    entry = next((e for e in sections if e.tag == path[0]), None)
    if entry is None:
        return ""
    return entry.value if isinstance(entry.value, str) else _at(entry.value, path[1:])


def _csv(fields: Sequence[str], rows: Sequence[Sequence[str]], form: Sequence[str]) -> str:
    plain = "nounits" in form
    lines = [] if "noheader" in form else [[name if plain else f"{name}{_unit(name)}" for name in fields]]
    lines += [[_bare(value) if plain else value for value in row] for row in rows]
    return "".join(", ".join(line) + "\n" for line in lines)


def _unit(name: str) -> str:
    """Return the unit in the header of ``name``, whether or not the GPU reports a value."""
    return next((f" [{unit}]" for start, unit in _UNIT_OF.items() if name.startswith(start)), "")


def _bare(value: str) -> str:
    number, _, unit = value.rpartition(" ")
    return number if unit in _UNIT_OF.values() else value
