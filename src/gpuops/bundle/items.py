"""What a bundle asks a node, and the file that each answer becomes.

Sources: NVIDIA, RMA Process and GPU Debug Guidelines; NVIDIA, DCGM user guide ("always include ... dcgmi -v"); Dell,
SupportAssist collections. docs/bundle.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probes.host.kernel_log import kernel_log
from gpuops.probes.host.nvme import nvme_health
from gpuops.probes.host.packages import packages
from gpuops.probes.network.transceivers import transceivers
from gpuops.shell import Command, Files, Question

NOT_ROOT = 77
"""Exit status of a command whose answer is complete only for root."""
NO_FILE = 66
"""Exit status of a command whose file does not exist."""
_SECONDS = 60.0
_LSPCI = ("lspci", "-D", "-nn", "-vvv", "-d")
_TAIL = f'[ -e "$1" ] || exit {NO_FILE}; tail -c 4194304 "$1"'


@dataclass(frozen=True)
class Item:
    """One question and the file for its answer. ``needs_root``: an ordinary user gets only a part, or nothing."""

    file: str
    question: Question
    needs_root: bool = False


def _nvidia_smi(file: str, *words: str) -> Item:
    return Item(file, Command(("nvidia-smi", *words), timeout_seconds=_SECONDS, lane="nvidia"))


def _as_root(file: str, *words: str) -> Item:
    return Item(file, Command(words, timeout_seconds=_SECONDS, become="if-refused"), needs_root=True)


def _for_root(file: str, script: str) -> Item:
    """Return an item that an ordinary user gets in part, and root, if sudo allows it, as a whole."""
    words = ("sh", "-c", f'{script}; [ "$(id -u)" -eq 0 ] || exit {NOT_ROOT}')
    return Item(file, Command(words, timeout_seconds=_SECONDS, become="if-refused"), needs_root=True)


ITEMS = (
    _nvidia_smi("nvidia-smi.txt", "-q"),
    _nvidia_smi("nvidia-smi.xml", "-q", "-x"),
    _nvidia_smi("nvlink-status.txt", "nvlink", "-s"),
    _nvidia_smi("nvlink-errors.txt", "nvlink", "-e"),
    _nvidia_smi("topology.txt", "topo", "-m"),
    Item("dcgm.txt", Command(("sh", "-c", "dcgmi -v && dcgmi discovery -l"), _SECONDS, lane="nvidia")),
    Item("kernel-log.txt", kernel_log.question, needs_root=True),
    _for_root("lspci-nvidia.txt", " ".join((*_LSPCI, "10de:"))),
    _for_root("lspci-nics.txt", "; ".join(" ".join((*_LSPCI, vendor)) for vendor in ("15b3:", "14e4:"))),
    Item(
        "driver.txt",
        Files(
            tuple(
                f"/proc/driver/{path}"
                for path in (
                    *("nvidia/version", "nvidia/params", "nvidia/registry", "nvidia/gpus/*/information"),
                    *("nvidia/gpus/*/power", "nvidia/warnings/*", "nvidia-nvswitch/version"),
                    *("nvidia-nvswitch/permissions", "nvidia-nvswitch/devices/*/information"),
                )
            )
        ),
    ),
    Item(
        "versions.txt",
        Files(
            (
                *("/proc/version", "/proc/cmdline", "/etc/os-release", "/proc/driver/nvidia/version"),
                *(f"/sys/class/dmi/id/{name}" for name in ("sys_vendor", "product_name", "board_name")),
                *(f"/sys/class/dmi/id/{name}" for name in ("bios_vendor", "bios_version", "bios_date")),
                "/sys/class/infiniband/*/fw_ver",
            )
        ),
    ),
    Item("packages.txt", packages.question),
    Item("fabric-manager.txt", Command(("nv-fabricmanager", "--version"), _SECONDS)),
    _as_root("fabric-manager-log.txt", "sh", "-c", _TAIL, "sh", "/var/log/fabricmanager.log"),
    Item("ibstat.txt", Command(("ibstat",), _SECONDS)),
    Item("ibv_devinfo.txt", Command(("ibv_devinfo", "-v"), _SECONDS)),
    Item("mlxlink.txt", transceivers.question, needs_root=True),
    _as_root("ipmi-sel.txt", "ipmitool", "sel", "elist"),
    _as_root("ipmi-fru.txt", "ipmitool", "fru", "print"),
    _as_root("ipmi-mc.txt", "ipmitool", "mc", "info"),
    Item("nvme.txt", nvme_health.question, needs_root=True),
    _as_root("dmidecode.txt", "dmidecode", "-t", "0,1,2,3,4,17"),
)
"""All questions except nvidia-bug-report.sh, which `gpuops.bundle.bug_report` runs last, because it may hang."""
BUG_REPORT = "nvidia-bug-report.log.gz"
SAFE_BUG_REPORT = "nvidia-bug-report-safe-mode.log.gz"
FINDINGS, HISTORY, FIGURES, MANIFEST = "findings.json", "history.json", "figures.csv", "manifest.json"
