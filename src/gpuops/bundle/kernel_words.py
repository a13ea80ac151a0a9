"""The kernel's command line, without what it passes to other programs: only parameters of the kernel keep values.

A parameter that the kernel does not know goes to init and to installers, often with a token or an address. The kernel
log repeats it, also as environment of init.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuops.bundle.secret_names import PRIVATE_NAME
from gpuops.secret import MASK

_LINE = re.compile(r"(?:\b[Cc]ommand line(?: parameters)?:? \"?|\bBOOT_IMAGE=)(?P<words>[^\n\"]*)")
_ENVIRONMENT = re.compile(r"(with environment:[^\n]*\n)((?:[^\n]*?\s[A-Za-z_][\w.]*=[^\n]*(?:\n|\Z))+)")
_ASSIGNED = re.compile(r"([A-Za-z_][\w.-]*)=(\"[^\"]*\"|\S+)")
# Documentation/admin-guide/kernel-parameters.txt: those that matter for GPUs, NICs, memory and clocks
_KNOWN = frozenset(
    (
        "BOOT_IMAGE root ro rw rootflags rootfstype quiet splash console earlycon iommu intel_iommu amd_iommu"
        " iommu.passthrough iommu.strict pci pcie_aspm pcie_ports pcie_acs_override default_hugepagesz hugepagesz"
        " hugepages transparent_hugepage numa_balancing numa isolcpus nohz nohz_full rcu_nocbs rcu_nocb_poll"
        " mitigations spectre_v2 processor.max_cstate intel_idle.max_cstate intel_pstate amd_pstate cpuidle.off"
        " idle crashkernel modprobe.blacklist module_blacklist rd.driver.blacklist nouveau.modeset net.ifnames"
        " biosdevname selinux apparmor cgroup_enable cgroup_no_v1 systemd.unified_cgroup_hierarchy init_on_alloc"
        " init_on_free tsc clocksource hpet nmi_watchdog nosoftlockup softlockup_panic panic audit loglevel"
        " ignore_loglevel log_buf_len printk.devkmsg kvm-intel.nested vfio-pci.ids memmap mem mce mce_pstore"
        " swiotlb cma lockdown fips HOME TERM"
    ).split()
)
_SECRET = re.compile(PRIVATE_NAME, re.IGNORECASE | re.ASCII)
_SHORTEST, _SHORTEST_UNNAMED = 6, 12
_KNOWN_PREFIXES = ("nvidia", "mlx5", "ib_", "nvme", "edac", "ghes", "acpi", "efi")


def without_values(text: str) -> tuple[str, int]:
    """Return ``text`` with the values of foreign parameters masked wherever it repeats a command line, and how many."""
    count = 0

    def mask(match: re.Match[str]) -> str:
        nonlocal count
        if _is_known(match[1]) or match[2] == MASK:
            return match[0]
        count += 1
        return f"{match[1]}={MASK}"

    def mask_all(match: re.Match[str]) -> str:
        return _ASSIGNED.sub(mask, match[0])

    return _ENVIRONMENT.sub(mask_all, _LINE.sub(mask_all, text)), count


def hidden_values(text: str) -> Iterator[str]:
    """Yield the masked values that are secret wherever they occur: long enough to be no everyday word."""
    for match in (*_LINE.finditer(text), *_ENVIRONMENT.finditer(text)):
        for name, quoted in _ASSIGNED.findall(match[0]):
            value = quoted.strip('"')
            if not _is_known(name) and _is_telling(name, value):
                yield value


def _is_telling(name: str, value: str) -> bool:
    if _SECRET.fullmatch(name):
        return len(value) >= _SHORTEST
    is_mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return len(value) >= _SHORTEST_UNNAMED and is_mixed


def _is_known(name: str) -> bool:
    return name in _KNOWN or name.startswith(_KNOWN_PREFIXES)
