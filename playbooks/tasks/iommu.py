"""An IOMMU that does not slow direct transfers between devices."""

from dataclasses import dataclass
from typing import Literal

from gpuops import Files, Plan, read_files, task, use

_CPUINFO = "/proc/cpuinfo"
_WORDS = {
    ("GenuineIntel", "passthrough"): ("intel_iommu=on", "iommu=pt"),
    ("GenuineIntel", "off"): ("intel_iommu=off",),
    ("AuthenticAMD", "passthrough"): ("iommu=pt",),  # AMD's is on by default
    ("AuthenticAMD", "off"): ("amd_iommu=off",),
    ("", "passthrough"): ("iommu.passthrough=1",),  # Arm
    ("", "off"): ("iommu.passthrough=1",),
}


@dataclass(frozen=True)
class Params:
    """``mode`` is passthrough (devices use physical addresses, and can still be assigned to guests) or off."""

    mode: Literal["passthrough", "off"] = "passthrough"


@task
def iommu(params: Params) -> Plan:
    """The kernel's command line has the setting for this processor; it applies at the next boot (reboot_required)."""
    text = read_files((yield Files((_CPUINFO,))).out).get(_CPUINFO, "")
    vendor = next((name for name, _ in _WORDS if name and name in text), "")
    add = _WORDS[vendor, params.mode]
    yield from use("kernel_cmdline", name="iommu", add=add, remove=["intel_iommu", "amd_iommu", "iommu"])
