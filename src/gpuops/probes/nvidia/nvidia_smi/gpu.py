"""Types of nvidia-smi's answer. In every field, None means that the GPU or the driver does not report it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Literal

from gpuops.probing import PartName

SmiErrorKind = Literal[
    "driver-not-loaded",
    "version-mismatch",
    "no-devices",
    "gpu-lost",
    "unknown-handle",
    "power-cable",
    "interrupt",
    "inforom",
    "not-found",
    "permission",
    "other",
]

_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([01][0-9a-f])(?:\.([0-7]))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Process:
    """One process with a context on a GPU; ``type`` is C (compute), G (graphics) or both."""

    pid: int | None
    name: str | None = None
    memory_mib: int | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Remapped rows of HBM; ``pending`` means that a reset is needed, ``failure`` that no spare row was available."""

    correctable: int | None
    uncorrectable: int | None
    pending: bool | None
    failure: bool | None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. ``faulty_fields`` are the fields with the value ``ERR!``, ``Unknown Error`` or "GPU is lost".

    ``requires_reset`` is set if one of them is "GPU requires reset".
    """

    index: int
    address: str
    name: str | None = None
    uuid: str | None = None
    serial: str | None = None
    vbios_version: str | None = None
    board_part_number: str | None = None
    architecture: str | None = None
    persistence_mode: bool | None = None
    mig_mode: bool | None = None
    mig_devices: int = 0
    mig_pending: bool | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    bar1_total_mib: int | None = None
    temperature_celsius: int | None = None
    slowdown_celsius: int | None = None
    shutdown_celsius: int | None = None
    tlimit_celsius: int | None = None
    memory_temperature_celsius: int | None = None
    memory_max_celsius: int | None = None
    power_draw_watts: float | None = None
    power_limit_watts: float | None = None
    default_power_limit_watts: float | None = None
    max_power_limit_watts: float | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    performance_state: str | None = None
    utilization_percent: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    heat_slowdown_microseconds: int | None = None
    power_brake_microseconds: int | None = None
    compute_mode: str | None = None
    c2c_mode: bool | None = None
    graphics_mhz: int | None = None
    graphics_mhz_max: int | None = None
    application_mhz: int | None = None
    application_mhz_default: int | None = None
    ecc_mode: bool | None = None
    ecc_mode_pending: bool | None = None
    sram_threshold_exceeded: bool | None = None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    unrepairable_memory: bool | None = None
    ecc_uncorrected_volatile: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    sram_uncorrected_aggregate: int | None = None
    ecc_corrected_volatile: int | None = None
    remapped_rows: RemappedRows | None = None
    retired_pages_pending: bool | None = None
    retired_pages_single_bit: int | None = None
    retired_pages_double_bit: int | None = None
    exhausted_banks: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_health: str | None = None
    fabric_recovering: bool | None = None
    fabric_bandwidth: str | None = None
    fabric_route_unhealthy: bool | None = None
    fabric_access_recovering: bool | None = None
    fabric_configuration: str | None = None
    fabric_cluster_uuid: str | None = None
    fabric_clique_id: int | None = None
    recovery_action: str | None = None
    processes: tuple[Process, ...] | None = None
    faulty_fields: tuple[str, ...] = ()
    requires_reset: bool = False

    def __reduce__(self) -> tuple[type[Gpu], tuple[object, ...]]:
        """Pickle the values alone: by itself, a dataclass with slots takes three times as long."""
        return Gpu, _values(self)

    @property
    def part(self) -> PartName:
        """Part of a finding: ``gpu5``, with its label."""
        return PartName(self.subject, self.label)

    @property
    def nvlink_domain(self) -> str:
        """UUID of the NVLink domain that leads beyond the node; empty if there is none, which is reported as zeros."""
        uuid = self.fabric_cluster_uuid or ""
        return uuid if uuid.strip("0-") else ""

    @property
    def subject(self) -> str:
        """Short name: ``gpu5``."""
        return f"gpu{self.index}"

    @property
    def label(self) -> str:
        """Description that helps a person to find it: ``GPU 5 (0000:c3:00.0, serial 1654922000001)``."""
        serial = f", serial {self.serial}" if self.serial else ""
        return f"GPU {self.index} ({self.address}{serial})"


_values: Callable[[Gpu], tuple[object, ...]] = attrgetter(*(each.name for each in fields(Gpu)))


@dataclass(frozen=True, slots=True)
class SmiError:
    """Error message of nvidia-smi; ``addresses`` are the GPUs that it names."""

    kind: SmiErrorKind
    text: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Smi:
    """One answer of nvidia-smi. With an ``error`` there may be no GPUs; ``attached_gpus`` is the number it claims."""

    driver_version: str | None = None
    cuda_version: str | None = None
    attached_gpus: int | None = None
    gpus: tuple[Gpu, ...] = ()
    error: SmiError | None = None


@lru_cache(maxsize=4096)  # several probes report the same addresses, and machines of one model have them, too
def canonical_address(text: str) -> str | None:
    """Return a PCI address as in sysfs (``0000:c3:00.0``), from any form that NVIDIA's tools print, else None.

    The forms are ``00000000:C3:00.0``, ``0000:C3:00.0``, ``GPU0000:CB:00.0`` and ``PCI:0000:c3:00``.
    """
    match = _ADDRESS.fullmatch(text.strip().upper().removeprefix("GPU").removeprefix("PCI:"))
    if match is None or not (match[1] or match[4]):
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or 0}".lower()
