"""The hardware model, from which every tool, file and fault of a lab host is derived: a `Node`.

It holds raw numbers with units in their names; only the tools format. A device's place on the PCI bus is its path from
the host bridge down, as /sys/devices spells it; topology, NUMA nodes and affinities are computed from it (`topology`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpuops.lab.identity import SEED, SERIAL, derived

PCIE_GB_PER_S = {3: 0.985, 4: 1.969, 5: 3.938}
"""What a lane carries in one direction, by generation."""


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
    nvlink_peer: str  # "switch" or "bridge"
    fabric: bool
    fan: bool
    memory_max_celsius: int | None = None
    target_celsius: int | None = None
    companions: tuple[tuple[str, str, str], ...] = ()  # further PCI functions: class, name, device


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
    remapped_correctable: int = 0
    remapped_uncorrectable: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: str = ""  # what it asks for by itself, in nvidia-smi's words
    route_unhealthy: bool = False
    links_down: frozenset[int] = frozenset()
    nvlink_slow_percent: float = 0.0  # below the rate that its links report
    miscounts: bool = False  # its sums are wrong, without any other sign
    processes: tuple[Process, ...] = ()

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
        rest = derived("gpu", self.index)
        return f"GPU-{SEED}-{rest[:4]}-{rest[4:8]}-{rest[8:12]}-{rest[12:24]}"

    @property
    def serial(self) -> str:
        """Thirteen digits, as on the board."""
        return f"165{SERIAL}{self.index:02d}"

    @property
    def used_mib(self) -> int:
        """Memory used by processes."""
        return sum(p.memory_mib for p in self.processes)

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


@dataclass(frozen=True)
class Nic:
    """One RDMA device with its port, from the machine's description, and its state."""

    name: str
    at: str
    hca: str
    board: str
    firmware: str
    pci_name: str
    device: str
    generation: int
    width: int
    link_layer: str
    gbps: int
    netdev: str
    rail: int | None = None
    up: bool = True
    slow_percent: float = 0.0  # below the rate that the port reports
    slow_duplex_percent: float = 0.0  # the same, but only while it sends and receives at once
    held_back_percent: float = 0.0  # below its rate because the network does not take more
    flaps: bool = False  # its link goes down whenever it is used
    lanes: int = 0  # to which its PCIe link trained, if these are fewer
    traffic_class: int = 162  # of RoCE, like what follows: the settings of this lab's switches
    lossless: frozenset[int] = frozenset({5})
    trust: str = "dscp"
    ecn: frozenset[int] = frozenset({5})

    @property
    def address(self) -> str:
        """The PCI address, as `Gpu.address`."""
        return address(self.at)

    @property
    def gb_per_s(self) -> float:
        """The bandwidth in one direction alone, which may be less than it reports."""
        return min(self.gbps / 8 * (1 - self.slow_percent / 100), self.pcie_gb_per_s)

    @property
    def loopback_gb_per_s(self) -> float:
        """What it reaches with itself, without its cable."""
        return min(self.gbps / 8, self.pcie_gb_per_s)

    @property
    def pcie_gb_per_s(self) -> float:
        """What its PCIe link carries in one direction, of which packets are a tenth."""
        return 0.9 * PCIE_GB_PER_S[self.generation] * (self.lanes or self.width)

    @property
    def duplex_gb_per_s(self) -> float:
        """The bandwidth in each direction when both are in use."""
        return self.gb_per_s * (1 - self.slow_duplex_percent / 100) * (1 - self.held_back_percent / 100)

    @property
    def counts(self) -> Mapping[str, int]:
        """What its faults count in a second of use."""
        waits = "port_xmit_wait" if self.link_layer == "InfiniBand" else "rx_prio3_pause"
        seen = {
            "symbol_error": 137 * bool(self.slow_percent or self.slow_duplex_percent),
            waits: 700_000 * bool(self.held_back_percent),
            "outbound_pci_stalled_wr_events": 5 * bool(self.lanes),
            "link_downed": int(self.flaps),
        }
        return {name: count for name, count in seen.items() if count}

    @property
    def guid(self) -> str:
        """Sixteen hex digits; the middle is the host's own."""
        return f"a088{SEED}{derived('nic', self.name)[:4]}"


@dataclass(frozen=True)
class Switches:
    """The NVSwitches of a baseboard."""

    pci_name: str
    device: str
    at: tuple[str, ...]


@dataclass(frozen=True)
class Driver:
    """Driver versions: of the kernel module, of user space and the disk, and of the fabric manager.

    Empty if none is loaded or installed.
    """

    version: str
    userspace: str
    fabric_manager: str | None
    cuda: str
    open: bool
    persistence: bool

    @property
    def works(self) -> bool:
        """True if a driver is installed and the same version is loaded."""
        return bool(self.version) and self.version == self.userspace

    @property
    def major(self) -> int:
        """The branch: 535, 580."""
        return int(self.userspace.partition(".")[0])


@dataclass(frozen=True)
class Disk:
    """One file system; ``used`` is a fraction of its size."""

    device: str
    gib: int
    mount: str
    used: float


@dataclass(frozen=True)
class Service:
    """A systemd unit's states."""

    active: str = "active"
    sub: str = "running"
    enabled: str = "enabled"


@dataclass(frozen=True)
class Changes:
    """The changes that commands made on a host since the lab started; `mutations` applies them.

    ``packages`` by name, with an empty version for a removed one. ``loaded`` is the driver that a reboot loaded, empty
    for none, and ``cmdline`` the words that this boot passed to the kernel; None means unchanged. ``reset`` are the
    indices of the GPUs that were reset.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    services: Mapping[str, Service] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    loaded: str | None = None
    cmdline: str | None = None
    reset: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Cpu:
    """The processors: model name and one CPU list per NUMA node."""

    model: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class System:
    """Vendor, operating system and memory."""

    vendor: str
    product: str
    bios: str
    memory_gib: int
    os: str
    kernel: str


@dataclass(frozen=True)
class Behaviour:
    """The behaviour of a host towards a session, including failures; in seconds where the name says so."""

    connection: str = "good"  # good, refuse, hang, wrong-key
    banner_delay_seconds: float = 0.0
    answer: str = "whole"  # whole, never, half
    login_shell: str = "sh"  # sh, noisy, csh
    python: bool = True
    sudo: str = "free"  # free, none, or the password that it asks for
    driver_delay_seconds: float = 0.0
    ranks_arrive: bool = True  # at a collective operation
    multicast: bool = True  # its NVSwitches, if it has any, offer NVLink SHARP
    multicast_slow_percent: float = 0.0
    sharp: str = "none"  # of the fabric and NCCL's plugin: none, works, fails
    clock_skew_seconds: float = 0.0
    failing_package: str = ""  # whose installation fails
    repositories: bool = True  # can be reached
    dpkg_locked: bool = False
    comes_back: bool = True  # from a reboot


@dataclass(frozen=True)
class Node:
    """The complete state of a lab host, shared by all hosts in the same state (see `identity`)."""

    machine: str
    system: System
    cpu: Cpu
    driver: Driver
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    host_bridges: Mapping[str, int]
    disks: tuple[Disk, ...]
    services: Mapping[str, Service]
    packages: Mapping[str, str]
    offered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by the repositories, the oldest first
    sysctls: Mapping[str, str] = field(default_factory=dict)
    cmdline: str = "iommu=pt"  # the kernel's parameters beyond its root
    switches: Switches | None = None
    kernel_messages: tuple[str, ...] = ()
    booted: float = 0.0  # seconds since the epoch
    visible_gpus: int | None = None  # how many a session can open; None: all
    behaviour: Behaviour = field(default_factory=Behaviour)
    changes: Changes = field(default_factory=Changes)

    @property
    def visible(self) -> tuple[Gpu, ...]:
        """The GPUs that this session's device cgroup allows."""
        return self.gpus[: self.visible_gpus]

    @property
    def lost(self) -> tuple[Gpu, ...]:
        """The visible GPUs that fell off the bus."""
        return tuple(g for g in self.visible if g.lost)

    @property
    def fabric_ready(self) -> bool:
        """True if a fabric manager has initialized the NVSwitches."""
        service = self.services.get("nvidia-fabricmanager")
        return service is not None and service.active == "active"

    def with_gpu(self, index: int, **changes: object) -> Node:
        """Return this node with one GPU changed."""
        gpus = tuple(replace(g, **changes) if g.index == index else g for g in self.gpus)  # type: ignore[arg-type]
        return replace(self, gpus=gpus)

    def with_nic(self, name: str, **changes: object) -> Node:
        """Return this node with one RDMA device changed."""
        nics = tuple(replace(n, **changes) if n.name == name else n for n in self.nics)  # type: ignore[arg-type]
        return replace(self, nics=nics)

    def logging(self, *messages: str) -> Node:
        """Return this node with further lines in its kernel log."""
        return replace(self, kernel_messages=(*self.kernel_messages, *messages))


def address(path: str) -> str:
    """Return the PCI address at the end of a device's path."""
    return path.rpartition("/")[2]
