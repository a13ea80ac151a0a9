"""Answer of one GPU as flat text, and its conversion to `Gpu`, with one table of names for all nvidia-smi schemas.

``nvidia-smi -q -x`` and ``nvidia-smi -q`` print the same tree under different names. Both become a `GpuRecord`, whose
paths are XML element names (``temperature/gpu_temp``) or the labels of ``-q`` in lower case with underscores
(``temperature/gpu_current_temp``). If schemas v11 to v13 renamed an element, the table lists every name; the first one
with a value counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any

from gpuops.probes.nvidia.nvidia_smi.gpu import Gpu, Process, RemappedRows, canonical_address
from gpuops.probing import Unknown

LOST = "GPU is lost"
RESET_REQUIRED = "GPU requires reset"
FAULTS = frozenset({"ERR!", "Unknown Error", LOST, RESET_REQUIRED})
"""Texts in place of a value if the card does not answer the driver (NVML's names of return codes)."""

_SILENT = {"", "N/A", "Not Supported", "Requested functionality has been deprecated", "Insufficient Permissions"}


@dataclass
class GpuRecord:
    """One GPU: its address as printed, the text at each path, and the elements that occur several times.

    ``values`` are those of `Gpu` that were read already, one part after the other (`values_of`).
    """

    address: str
    fields: dict[str, str] = field(default_factory=dict)
    processes: list[dict[str, str]] = field(default_factory=list)
    mig_devices: int = 0
    values: dict[str, Any] | None = None


def joined(address: str, parts: Iterable[GpuRecord]) -> GpuRecord:
    """Return the record of a GPU from those of its parts; raise `ValueError` if two of them have the same value."""
    record, values, count = GpuRecord(address), dict[str, Any](), 0
    for part in parts:
        if part.fields:
            record.fields.update(part.fields)
        if part.values:
            values.update(part.values)
            count += len(part.values)
        if part.processes or part.mig_devices:
            record.processes += part.processes
            record.mig_devices += part.mig_devices
    if len(values) < count:
        raise ValueError("a value in two parts, of which only the table knows the first")
    record.values = values
    return record


def bare(text: str) -> str:
    """Return the text without spaces and without the brackets of ``[N/A]``."""
    return text.strip("[] \t\r\n")


def read_text(text: str) -> str | None:
    """Return the text, or None if nvidia-smi does not report a value."""
    word = bare(text)
    return None if word in _SILENT or word in FAULTS else word


def _read_status(text: str) -> str | None:
    """Return the text like `read_text`, but keep NVML's names of errors: here they are values."""
    word = bare(text)
    return None if word in _SILENT else word


def _number(unit: str) -> Callable[[str], float | None]:
    """Return a reader of decimal numbers followed by ``unit`` (a regular expression); it returns None otherwise."""
    pattern = re.compile(rf"(-?[0-9]{{1,15}}(?:\.[0-9]{{1,9}})?){unit}")

    @lru_cache(maxsize=1024)  # the GPUs of a cluster report much the same values
    def read(text: str) -> float | None:
        match = pattern.fullmatch(bare(text))
        return float(match[1]) if match else None

    return read


def _integer(unit: str = "") -> Callable[[str], int | None]:
    """Return a reader of whole numbers, like `_number`."""
    pattern = re.compile(rf"(-?[0-9]{{1,15}}){unit}")

    @lru_cache(maxsize=1024)
    def read(text: str) -> int | None:
        match = pattern.fullmatch(bare(text))
        return int(match[1]) if match else None

    return read


def _choice(words: Mapping[str, bool]) -> Callable[[str], bool | None]:
    return lambda text: words.get(bare(text))


read_count = _integer()
read_mib = _integer(" MiB")
read_watts = _number(" W")
_celsius = _integer(" C")
_percent = _integer(" %")
_lanes = _integer("x?")
_mhz = _integer(" MHz")
_microseconds = _integer(" us")
_enabled = _choice({"Enabled": True, "Disabled": False})
_true = _choice({"True": True, "False": False})
_yes = _choice({"Yes": True, "No": False})

_TABLE: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "name": (read_text, ("product_name",)),
    "uuid": (read_text, ("uuid", "gpu_uuid")),
    "serial": (read_text, ("serial", "serial_number")),
    "vbios_version": (read_text, ("vbios_version",)),
    "board_part_number": (read_text, ("board_part_number",)),
    "architecture": (read_text, ("product_architecture",)),
    "persistence_mode": (_enabled, ("persistence_mode",)),
    "mig_mode": (_enabled, ("mig_mode/current_mig", "mig_mode/current")),
    "memory_total_mib": (read_mib, ("fb_memory_usage/total",)),
    "memory_used_mib": (read_mib, ("fb_memory_usage/used",)),
    "bar1_total_mib": (read_mib, ("bar1_memory_usage/total",)),
    "temperature_celsius": (_celsius, ("temperature/gpu_temp", "temperature/gpu_current_temp")),
    "slowdown_celsius": (_celsius, ("temperature/gpu_temp_slow_threshold", "temperature/gpu_slowdown_temp")),
    "shutdown_celsius": (_celsius, ("temperature/gpu_temp_max_threshold", "temperature/gpu_shutdown_temp")),
    "tlimit_celsius": (_celsius, ("temperature/gpu_temp_tlimit", "temperature/gpu_t_limit_temp")),
    "memory_temperature_celsius": (_celsius, ("temperature/memory_temp", "temperature/memory_current_temp")),
    "memory_max_celsius": (
        _celsius,
        ("temperature/gpu_temp_max_mem_threshold", "temperature/memory_max_operating_temp"),
    ),
    "power_draw_watts": (
        read_watts,
        (
            "gpu_power_readings/instant_power_draw",
            "gpu_power_readings/instantaneous_power_draw",
            "gpu_power_readings/power_draw",
            "gpu_power_readings/average_power_draw",
            "power_readings/power_draw",
        ),
    ),
    "power_limit_watts": (
        read_watts,
        (
            "gpu_power_readings/current_power_limit",
            "power_readings/enforced_power_limit",
            "power_readings/power_limit",
        ),
    ),
    "default_power_limit_watts": (
        read_watts,
        ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
    ),
    "max_power_limit_watts": (read_watts, ("gpu_power_readings/max_power_limit", "power_readings/max_power_limit")),
    "pcie_generation": (
        read_count,
        ("pci/pci_gpu_link_info/pcie_gen/current_link_gen", "pci/gpu_link_info/pcie_generation/current"),
    ),
    "pcie_generation_max": (
        read_count,
        ("pci/pci_gpu_link_info/pcie_gen/max_link_gen", "pci/gpu_link_info/pcie_generation/max"),
    ),
    "pcie_width": (
        _lanes,
        ("pci/pci_gpu_link_info/link_widths/current_link_width", "pci/gpu_link_info/link_width/current"),
    ),
    "pcie_width_max": (
        _lanes,
        ("pci/pci_gpu_link_info/link_widths/max_link_width", "pci/gpu_link_info/link_width/max"),
    ),
    "pcie_replays": (read_count, ("pci/replay_counter", "pci/replays_since_reset")),
    "performance_state": (read_text, ("performance_state",)),
    "utilization_percent": (_percent, ("utilization/gpu_util", "utilization/gpu")),
    "heat_slowdown_microseconds": (
        _microseconds,
        (
            "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_therm_slowdown",
            "clocks_event_reasons_counters/hw_thermal_slowdown",
        ),
    ),
    "power_brake_microseconds": (
        _microseconds,
        (
            "clocks_event_reasons_counters/clocks_event_reasons_counters_hw_power_brake",
            "clocks_event_reasons_counters/hw_power_braking",
        ),
    ),
    "compute_mode": (read_text, ("compute_mode",)),
    "c2c_mode": (_enabled, ("c2c_mode", "gpu_c2c_mode")),
    "graphics_mhz": (_mhz, ("clocks/graphics_clock", "clocks/graphics")),
    "graphics_mhz_max": (_mhz, ("max_clocks/graphics_clock", "max_clocks/graphics")),
    "application_mhz": (_mhz, ("applications_clocks/graphics_clock", "applications_clocks/graphics")),
    "application_mhz_default": (
        _mhz,
        ("default_applications_clocks/graphics_clock", "default_applications_clocks/graphics"),
    ),
    "ecc_mode": (_enabled, ("ecc_mode/current_ecc", "ecc_mode/current")),
    "ecc_mode_pending": (_enabled, ("ecc_mode/pending_ecc", "ecc_mode/pending")),
    "sram_threshold_exceeded": (_yes, ("ecc_errors/aggregate/sram_threshold_exceeded",)),
    "channel_repair_pending": (_yes, ("ecc_errors/channel_repair_pending",)),
    "tpc_repair_pending": (_yes, ("ecc_errors/tpc_repair_pending",)),
    "unrepairable_memory": (_yes, ("ecc_errors/unrepairable_memory",)),
    "retired_pages_pending": (
        _yes,
        ("retired_pages/pending_retirement", "retired_pages/pending_blacklist", "retired_pages/pending_page_blacklist"),
    ),
    "retired_pages_single_bit": (
        read_count,
        ("retired_pages/multiple_single_bit_retirement/retired_count", "retired_pages/single_bit_ecc"),
    ),
    "retired_pages_double_bit": (
        read_count,
        ("retired_pages/double_bit_retirement/retired_count", "retired_pages/double_bit_ecc"),
    ),
    "exhausted_banks": (
        _integer(r" bank\(s\)"),
        (
            "remapped_rows/row_remapper_histogram/row_remapper_histogram_none",
            "remapped_rows/bank_remap_availability_histogram/none",
        ),
    ),
    "mig_pending": (_enabled, ("mig_mode/pending_mig", "mig_mode/pending")),
    "fabric_state": (read_text, ("fabric/state",)),
    "fabric_status": (_read_status, ("fabric/status",)),
    "fabric_health": (read_text, ("fabric/health/summary",)),
    "fabric_recovering": (_true, ("fabric/health/route_recovery_in_progress",)),
    "fabric_bandwidth": (read_text, ("fabric/health/bandwidth",)),
    "fabric_route_unhealthy": (_true, ("fabric/health/route_unhealthy",)),
    "fabric_access_recovering": (_true, ("fabric/health/access_timeout_recovery",)),
    "fabric_configuration": (read_text, ("fabric/health/incorrect_configuration",)),
    "fabric_cluster_uuid": (read_text, ("fabric/clusterUuid", "fabric/clusteruuid")),
    "fabric_clique_id": (read_count, ("fabric/cliqueId", "fabric/cliqueid")),
    "recovery_action": (read_text, ("gpu_recovery_action",)),
}

_REASONS = re.compile(r"clocks_(?:event|throttle)_reasons/(?:.*/)?(?:clocks_(?:event|throttle)_reason_)?(\w+)")
_REASON_LABELS = {"idle": "gpu_idle", "display_clock_setting": "display_clocks_setting"}
_SRAM_UNCORRECTED = (
    "sram_uncorrectable",
    "sram_uncorrectable_parity",
    "sram_uncorrectable_secded",
    "sram_uncorrectable_sec_ded",
)
_ECC_KINDS = {
    "sram_uncorrected": _SRAM_UNCORRECTED,
    "corrected": ("sram_correctable", "dram_correctable", "single_bit/total"),
    "uncorrected": (*_SRAM_UNCORRECTED, "dram_uncorrectable", "double_bit/total"),
}

_DERIVED = {
    "clocks_event_reasons",
    "clocks_throttle_reasons",
    "ecc_errors",
    "remapped_rows",
    "processes",
    "mig_devices",
}
"""Sections with values that are no single field."""
SECTIONS = sorted({path.partition("/")[0] for _, paths in _TABLE.values() for path in paths if "/" in path} | _DERIVED)
"""Sections of a GPU's answer that `Gpu` needs."""


_BY_PART: dict[str, list[tuple[str, Callable[[str], Any], list[str]]]] = {}
"""The lines of the table by the section or leaf that they are read from."""
for _name, (_read, _paths) in _TABLE.items():
    for _tag, _own in groupby(_paths, lambda path: path.partition("/")[0]):
        _BY_PART.setdefault(_tag, []).append((_name, _read, list(_own)))


def values_of(record: GpuRecord, tag: str) -> dict[str, Any]:
    """Return the values of `Gpu` in the record of one section or leaf, ``tag``, as far as it reports them."""
    values = {name: _first(record.fields, paths, read) for name, read, paths in _BY_PART.get(tag, ())}
    if tag in _DERIVED:  # of which each value has but one
        values |= _derived(record)
        if not record.mig_devices:
            del values["mig_devices"]
    return {name: value for name, value in values.items() if value is not None}


def _derived(record: GpuRecord) -> dict[str, Any]:
    """Return the values that are no single field."""
    fields = record.fields
    return {
        "mig_devices": record.mig_devices,
        "throttle_reasons": _throttle_reasons(fields),
        "ecc_uncorrected_volatile": _ecc_errors(fields, "volatile", "uncorrected"),
        "ecc_uncorrected_aggregate": _ecc_errors(fields, "aggregate", "uncorrected"),
        "sram_uncorrected_aggregate": _ecc_errors(fields, "aggregate", "sram_uncorrected"),
        "ecc_corrected_volatile": _ecc_errors(fields, "volatile", "corrected"),
        "remapped_rows": _remapped_rows(fields),
        "processes": _processes(record),
    }


def gpu_of(record: GpuRecord, index: int) -> Gpu | Unknown:
    """Return the typed GPU in ``record``; `Unknown` if its address, which identifies it, cannot be read."""
    address = canonical_address(record.address)
    if address is None:
        return Unknown(f'GPU {index} of nvidia-smi has no PCI address: found "{record.address[:40]}"')
    if record.values is not None:  # no part of it had a fault
        return Gpu(index, address, **record.values)
    fields = record.fields
    faulty = tuple(path for path, text in fields.items() if bare(text) in FAULTS)
    return Gpu(
        index=index,
        address=address,
        faulty_fields=faulty,
        requires_reset=any(bare(fields[path]) == RESET_REQUIRED for path in faulty),
        **_derived(record),
        **{name: _first(fields, paths, read) for name, (read, paths) in _TABLE.items()},
    )


def _first(fields: Mapping[str, str], paths: Iterable[str], read: Callable[[str], Any]) -> Any:
    for path in paths:
        text = fields.get(path)
        if text is not None and (value := read(text)) is not None:
            return value
    return None


def _throttle_reasons(fields: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the short names of the active reasons; None if the driver lists none at all."""
    reasons = ((path, _reason(path)) for path in fields if path[:7] == "clocks_")
    state_by_reason = {reason: bare(fields[path]) for path, reason in reasons if reason}
    if not {"Active", "Not Active"} & set(state_by_reason.values()):
        return None
    return tuple(_REASON_LABELS.get(name, name) for name, state in state_by_reason.items() if state == "Active")


@lru_cache(maxsize=256)  # all GPUs have the same paths
def _reason(path: str) -> str:
    """Return the reason that a path names; empty if it names none."""
    match = _REASONS.fullmatch(path)
    return match[1] if match else ""


def _ecc_errors(fields: Mapping[str, str], scope: str, kind: str) -> int | None:
    """Return the sum of SRAM and DRAM errors; before Ampere the driver counts single- and double-bit errors instead."""
    counts = [read_count(fields.get(f"ecc_errors/{scope}/{name}", "")) for name in _ECC_KINDS[kind]]
    reported = [count for count in counts if count is not None]
    return sum(reported) if reported else None


def _remapped_rows(fields: Mapping[str, str]) -> RemappedRows | None:
    rows = RemappedRows(
        _first(fields, ("remapped_rows/remapped_row_corr", "remapped_rows/correctable_error"), read_count),
        _first(fields, ("remapped_rows/remapped_row_unc", "remapped_rows/uncorrectable_error"), read_count),
        _first(fields, ("remapped_rows/remapped_row_pending", "remapped_rows/pending"), _yes),
        _first(fields, ("remapped_rows/remapped_row_failure", "remapped_rows/remapping_failure_occurred"), _yes),
    )
    return None if rows == RemappedRows(None, None, None, None) else rows


def _processes(record: GpuRecord) -> tuple[Process, ...] | None:
    """Return the processes; None if the driver cannot list them (``N/A``) or the section is missing."""
    if not record.processes and bare(record.fields.get("processes", "N/A")) not in {"", "None"}:
        return None
    return tuple(_process(p) for p in record.processes)


def _process(fields: Mapping[str, str]) -> Process:
    return Process(
        pid=_first(fields, ("pid", "process_id"), read_count),
        name=_first(fields, ("process_name", "name"), read_text),
        memory_mib=_first(fields, ("used_memory", "used_gpu_memory"), read_mib),
        type=read_text(fields.get("type", "")),
    )
