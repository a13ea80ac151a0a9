"""GPUs of the hardware model: what all of one model have in common, and the state of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.lab.identity import SEED, SERIAL, derived
from gpuops.lab.model.address import address


@dataclass(frozen=True)
class GpuModel:
    """The common properties of all GPUs of one model; None if the model does not report a value."""

    name: str
    brand: str
    architecture: str
    compute_capability: str
    pci_name: str
    pci_class: str
    device: str
    subsystem: str
    board_part_number: str
    part_number: str
    vbios: str
    inforom: tuple[str, str, str | None]
    memory_mib: int
    reserved_mib: int
    bar1_mib: int
    ecc: bool
    remap_banks: int
    mig: bool
    gen: int
    idle_gen: int
    width: int
    idle_celsius: int
    memory_celsius: int | None
    max_operating_celsius: int
    slowdown_celsius: int
    shutdown_celsius: int
    reports_margin: bool  # Hopper and newer report margins (T.Limit) instead of thresholds
    idle_watts: float
    min_watts: float
    default_watts: float
    max_watts: float
    memory_watts: float | None
    idle_mhz: Mapping[str, int]
    max_mhz: Mapping[str, int]
    min_graphics_mhz: int
    idle_state: str
    nvlinks: int
    nvlink_gb_per_s: str  # as the driver prints it
    nvlink_peer: str  # "switch", "bridge" or "mesh"; empty for none
    fabric: bool
    fan: bool
    memory_max_celsius: int | None = None
    target_celsius: int | None = None
    companions: tuple[tuple[str, str, str], ...] = ()  # further PCI functions: class, name, device
    ecc_off: bool = False  # it has ECC, but the owner did not switch it on
    device_gen: int = 0  # the PCIe generation of the GPU alone, if its slot has less
    memory_nodes: int = 0  # NUMA nodes of its memory, if the CPU shares it
    module_watts: tuple[float, float, float] | None = None  # of GPU and CPU together: drawn, lowest and highest limit
    module_ids: tuple[int, ...] = ()  # by index, if not one more than it
    retires_pages: bool = False  # of its memory, as GPUs did before they remapped rows
    application_mhz: Mapping[str, int] = field(default_factory=dict)  # if these are below the highest clocks
    fabric_health: Mapping[str, str] = field(default_factory=dict)  # what a healthy one reports, by XML tag


@dataclass(frozen=True)
class Process:
    """A process that holds memory of a GPU."""

    pid: int
    name: str
    memory_mib: int


@dataclass(frozen=True)
class Gpu:
    """One GPU and its current state."""

    index: int
    path: str
    model: GpuModel
    lost: bool = False
    uninitialized: bool = False  # the driver manages it, and could not start it
    excluded: bool = False  # by the parameter NVreg_ExcludedGpus of the driver's module
    celsius: int = 0
    memory_celsius: int | None = None
    watts: float = 0.0
    limit_watts: float = 0.0
    graphics_mhz: int = 0
    memory_mhz: int = 0
    state: str = "P0"
    gen: int = 0
    width: int = 0
    utilization_percent: int = 0
    reasons: frozenset[str] = frozenset({"gpu_idle"})
    thermal_slowdown_us: int = 0
    ecc_uncorrectable: int = 0
    ecc_uncorrectable_before_reset: int = 0
    remapped_correctable: int = 0
    remapped_uncorrectable: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: str = ""  # what it asks for by itself, in nvidia-smi's words
    route_unhealthy: bool = False
    links_down: frozenset[int] = frozenset()
    link_recoveries: Mapping[int, int] = field(default_factory=dict)  # how often each link retrained
    nvlink_slow_percent: float = 0.0  # below the rate that its links report
    nvlink_error: str = ""  # what nvidia-smi prints instead of its links
    mig: bool = False  # in MIG mode, which switches its NVLinks off
    inforom_corrupted: bool = False
    prints: Mapping[str, str] = field(default_factory=dict)  # instead of its own values, by path of tags in -q -x
    compute_slow_percent: float = 0.0  # below what its clocks allow
    memory_slow_percent: float = 0.0  # the same of its own memory
    miscounts: bool = False  # its sums are wrong, without any other sign
    processes: tuple[Process, ...] = ()
    stray_mib: int = 0  # memory that no process holds
    card: str = ""  # the serial number of another card that is in its slot

    @property
    def address(self) -> str:
        """Domain, bus, device and function, in lower case with four digits of domain."""
        return address(self.path)

    @property
    def bus_id(self) -> str:
        """The address as nvidia-smi writes it: eight digits of domain, upper case."""
        return f"0000{self.address}".upper()

    @property
    def uuid(self) -> str:
        """The GPU's UUID; its first group is the host's own."""
        rest = derived("gpu", self.card or self.index)
        return f"GPU-{SEED}-{rest[:4]}-{rest[4:8]}-{rest[8:12]}-{rest[12:24]}"

    @property
    def serial(self) -> str:
        """Thirteen digits, as on the board."""
        return self.card or f"165{SERIAL}{self.index:02d}"

    @property
    def domain(self) -> str:
        """The PCI domain, four digits."""
        return self.address[:4].upper()

    @property
    def module_id(self) -> int:
        """The number of its socket on the baseboard."""
        return self.model.module_ids[self.index] if self.model.module_ids else self.index + 1

    @property
    def first_memory_node(self) -> int | None:
        """The first NUMA node of its memory; the nodes 0 and 1 are the sockets."""
        return 2 + self.model.memory_nodes * self.index if self.model.memory_nodes else None

    @property
    def used_mib(self) -> int:
        """Memory in use, by processes or by none."""
        return sum(p.memory_mib for p in self.processes) + self.stray_mib

    @property
    def margin_celsius(self) -> int:
        """Degrees below the highest operating temperature: nvidia-smi's T.Limit."""
        return self.model.max_operating_celsius - self.celsius


def resting(index: int, path: str, model: GpuModel) -> Gpu:
    """Return a healthy, idle GPU."""
    return Gpu(
        index=index,
        path=path,
        model=model,
        celsius=model.idle_celsius + index % 4,
        memory_celsius=None if model.memory_celsius is None else model.memory_celsius + index % 3,
        watts=round(model.idle_watts + 1.37 * index, 2),
        limit_watts=model.default_watts,
        graphics_mhz=model.idle_mhz["graphics"],
        memory_mhz=model.idle_mhz["memory"],
        state=model.idle_state,
        gen=model.idle_gen,
        width=model.width,
    )
