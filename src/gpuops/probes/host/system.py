"""Hardware and operating system of the node: distribution, kernel, memory, processors, NUMA nodes, vendor.

``MemTotal: 2097152 kB`` in /proc/meminfo is a ``memory_gib`` of 2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.probes.numbers import integer, number
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_NEEDED = ("/proc/sys/kernel/osrelease", "/proc/meminfo", "/proc/cpuinfo")
_NUMA = re.compile(r"/sys/devices/system/node/node(\d{1,4})/cpulist", re.ASCII)
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
_HYPERVISORS = re.compile(
    r"QEMU|KVM|Bochs|Xen|VMware|VirtualBox|Virtual Machine|Amazon EC2(?!.*metal)|Google Compute Engine|OpenStack"
)


@dataclass(frozen=True)
class System:
    """One machine; an empty string or None means not reported. ``numa_nodes`` are CPU lists (``0-55,112-167``) by node.

    ``os_id`` and ``os_version`` are os-release's ID and VERSION_ID (``ubuntu``, ``22.04``). ``cpus`` is the number of
    online processors, of which a core has ``threads_per_core``. ``boot_id`` changes with every boot.
    """

    os_id: str
    os_version: str
    kernel: str
    hostname: str
    boot_id: str
    uptime_seconds: float | None
    cmdline: str
    memory_gib: float | None
    cpu_model: str
    cpus: int | None
    numa_nodes: Mapping[int, str] = field(hash=False)
    vendor: str
    product: str
    bios_version: str
    virtual: bool
    threads_per_core: int = 1

    @property
    def cores(self) -> int | None:
        """Number of physical cores with an online processor; None if the processors are not known."""
        return None if self.cpus is None else max(1, self.cpus // self.threads_per_core)


def parse_system(text: str) -> System | Unknown:
    """Parse the files of `system`; `Unknown` without kernel, memory and processors."""
    files = {path: content.strip() for path, content in read_files(text).items()}
    missing = [path for path in _NEEDED if not files.get(path)]
    if missing:
        return Unknown(f"{missing[0]} cannot be read")
    release, cpu = _fields(files.get("/etc/os-release", ""), "="), _first_processor(files["/proc/cpuinfo"])
    memory_kib = number(_fields(files["/proc/meminfo"], ":").get("MemTotal"))
    vendor, product, bios_version = (files.get(path, "") for path in _DMI)
    return System(
        os_id=release.get("ID", "").strip("\"'"),
        os_version=release.get("VERSION_ID", "").strip("\"'"),
        kernel=files["/proc/sys/kernel/osrelease"],
        hostname=files.get("/proc/sys/kernel/hostname", ""),
        boot_id=files.get("/proc/sys/kernel/random/boot_id", ""),
        uptime_seconds=number(files.get("/proc/uptime")),
        cmdline=files.get("/proc/cmdline", ""),
        memory_gib=memory_kib / 2**20 if memory_kib is not None else None,
        cpu_model=cpu.get("model name", ""),
        cpus=count_cpus(files.get("/sys/devices/system/cpu/online", "")),
        numa_nodes={int(node[1]): files[node[0]] for node in map(_NUMA.fullmatch, sorted(files)) if node},
        vendor=vendor,
        product=product,
        bios_version=bios_version,
        virtual=_is_virtual(cpu.get("flags", ""), f"{vendor} {product}", files.get("/sys/hypervisor/type", "")),
        threads_per_core=_threads_per_core(cpu),
    )


def _fields(text: str, separator: str) -> dict[str, str]:
    pairs = (line.partition(separator) for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _first_processor(cpuinfo: str) -> dict[str, str]:
    """Return the fields of the first processor; the others are the same, and the text may be truncated."""
    return _fields(cpuinfo.split("\n\n", 1)[0], ":")


def count_cpus(cpulist: str) -> int | None:
    """Return the number of processors in a kernel CPU list (``0-55,112-167``); None if the text is not such a list."""
    ranges = [_RANGE.fullmatch(part) for part in cpulist.split(",")]
    sizes = [int(r[2] or r[1]) - int(r[1]) + 1 for r in ranges if r]
    return sum(sizes) if len(sizes) == len(ranges) and min(sizes) > 0 else None


def _threads_per_core(cpu: Mapping[str, str]) -> int:
    """Return how many processors share a core of a socket; 1 where the kernel does not say, as on ARM."""
    siblings, cores = integer(cpu.get("siblings")), integer(cpu.get("cpu cores"))
    return max(1, siblings // cores) if siblings and cores else 1


def _is_virtual(flags: str, maker: str, hypervisor: str) -> bool:
    """Return True in a virtual machine: hypervisors set a CPU flag on x86, and put their name on the board."""
    return "hypervisor" in flags.split() or bool(hypervisor) or bool(_HYPERVISORS.search(maker))


_DMI = tuple(f"/sys/class/dmi/id/{leaf}" for leaf in ("sys_vendor", "product_name", "bios_version"))

system: Probe[System] = Probe(
    "system",
    Files(
        (
            "/etc/os-release",
            *(f"/proc/sys/kernel/{leaf}" for leaf in ("osrelease", "hostname", "random/boot_id")),
            *(f"/proc/{leaf}" for leaf in ("uptime", "cmdline", "meminfo", "cpuinfo")),
            *_DMI,
            "/sys/devices/system/cpu/online",
            "/sys/devices/system/node/node*/cpulist",
            "/sys/hypervisor/type",
        ),
        limit_bytes=8192,
    ),
    lambda answer: parse_system(answer.out),
)
"""Hardware and operating system of the node."""
