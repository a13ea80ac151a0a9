"""The machine and its operating system: distribution, kernel, memory, processors, NUMA nodes, vendor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files


@dataclass(frozen=True)
class System:
    """One machine. An empty text or None: it does not say. ``numa_nodes`` are CPU lists (``0-55,112-167``) by node.

    ``os_id`` and ``os_version`` are os-release's ID and VERSION_ID (``ubuntu``, ``22.04``). ``cpus`` counts the
    processors that are online. ``boot_id`` changes with every boot.
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


def parse_system(text: str) -> System | Unknown:
    """The machine, from the files of `system`."""
    return Unknown(f"not read yet: {text[:20]}")


system: Probe[System] = Probe(
    "system",
    Files(
        (
            "/etc/os-release",
            *(f"/proc/sys/kernel/{leaf}" for leaf in ("osrelease", "hostname", "random/boot_id")),
            *(f"/proc/{leaf}" for leaf in ("uptime", "cmdline", "meminfo", "cpuinfo")),
            *(f"/sys/class/dmi/id/{leaf}" for leaf in ("sys_vendor", "product_name", "bios_version")),
            "/sys/devices/system/cpu/online",
            "/sys/devices/system/node/node*/cpulist",
            "/sys/hypervisor/type",
        ),
        limit_bytes=8192,
    ),
    lambda answer: parse_system(answer.out),
)
