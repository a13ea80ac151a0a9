"""The hardware model, from which every tool, file and fault of a lab host is derived: a `Node`.

It holds raw numbers with units in their names; only the tools format. A device's place on the PCI bus is its path from
the host bridge down, as /sys/devices spells it; topology, NUMA nodes and affinities are computed from it (`topology`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuops.lab.model.address import address
from gpuops.lab.model.bmc import Bmc
from gpuops.lab.model.gpus import Gpu, GpuModel, Process, resting
from gpuops.lab.model.nics import PCIE_GB_PER_S, Nic
from gpuops.lab.model.storage import Drive, Mirror

__all__ = [
    "PCIE_GB_PER_S",
    "Behaviour",
    "Bmc",
    "Changes",
    "Cpu",
    "Disk",
    "Drive",
    "Driver",
    "Gpu",
    "GpuModel",
    "Mirror",
    "Nic",
    "Node",
    "Process",
    "Rack",
    "Service",
    "Switches",
    "System",
    "address",
    "resting",
]


@dataclass(frozen=True)
class Switches:
    """The NVSwitches of a baseboard."""

    pci_name: str
    device: str
    at: tuple[str, ...]
    lost: frozenset[str] = frozenset()  # those of ``at`` that fell off the bus


@dataclass(frozen=True)
class Rack:
    """The rack whose NVLink switches connect several nodes; their fabric manager is in the rack, not on the nodes."""

    clique: int
    cluster: str
    slot: int
    tray: int


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
    machine: str = "x86_64"

    @property
    def debian_architecture(self) -> str:
        """The name that Debian and Ubuntu have for it."""
        return "arm64" if self.machine == "aarch64" else "amd64"


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
    bug_report_hangs: bool = False  # without --safe-mode


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
    imex: str = "READY"  # what the IMEX service answers, on machines that have it
    imex_domain: str = "UP"
    confidential: str = "OFF"  # or ON: the mode of its GPUs
    accepts_work: bool = False  # in confidential computing
    efa_drivers: tuple[str, ...] = ()  # of each EFA adapter: its driver, empty for none
    cmdline: str = "iommu=pt"  # the kernel's parameters beyond its root
    switches: Switches | None = None
    acs: frozenset[str] = frozenset()  # the bridges on which ACS is on
    mft: bool = True  # Mellanox Firmware Tools are installed
    peermem: bool = True  # nvidia-peermem is loaded if there are adapters
    rack: Rack | None = None
    nvlink_mesh: tuple[tuple[int, ...], ...] = ()  # of each GPU: the GPU at the other end of each link
    kernel_messages: tuple[str, ...] = ()
    booted: float = 0.0  # seconds since the epoch
    own_files: Mapping[str, str | None] = field(default_factory=dict)  # changed; None: gone
    power: Mapping[str, Any] = field(default_factory=dict)  # as the owner wired it; only the inventory shows it
    bmc: Bmc | None = None
    drives: tuple[Drive, ...] = ()
    mirrors: tuple[Mirror, ...] = ()
    visible_gpus: int | None = None  # how many a session can open; None: all
    behaviour: Behaviour = field(default_factory=Behaviour)
    changes: Changes = field(default_factory=Changes)

    @property
    def visible(self) -> tuple[Gpu, ...]:
        """The GPUs that work and that this session's device cgroup allows."""
        return tuple(gpu for gpu in self.gpus[: self.visible_gpus] if not gpu.uninitialized)

    @property
    def lost(self) -> tuple[Gpu, ...]:
        """The visible GPUs that fell off the bus."""
        return tuple(g for g in self.visible if g.lost)

    @property
    def fabric_ready(self) -> bool:
        """True if a fabric manager has initialized the NVSwitches, on this node or in its rack."""
        return self.rack is not None or self.manages_fabric

    @property
    def manages_fabric(self) -> bool:
        """True if a fabric manager runs here."""
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

    def with_file(self, path: str, text: str | None) -> Node:
        """Return this node with one file of /sys, /proc or /etc changed, or without it."""
        return replace(self, own_files={**self.own_files, path: text})

    def logging(self, *messages: str) -> Node:
        """Return this node with further lines in its kernel log."""
        return replace(self, kernel_messages=(*self.kernel_messages, *messages))
