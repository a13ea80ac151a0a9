"""The programs of a lab host, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuops.lab.model import Node
from gpuops.lab.tools import (
    bug_report,
    debian,
    dmidecode,
    ethtool,
    host,
    infiniband,
    ipmitool,
    kernel,
    kernel_log,
    loads,
    lspci,
    mlxlink,
    processes,
    repositories,
    software,
    storage,
    systemd,
)
from gpuops.lab.tools.answer import Answer, Tool
from gpuops.lab.tools.nvidia_smi.program import nvidia_smi

PROGRAMS: Mapping[str, Tool] = {
    "nvidia-smi": nvidia_smi,
    "dcgmi": loads.dcgmi,
    "nvbandwidth": loads.nvbandwidth,
    "nvidia-bug-report.sh": bug_report.nvidia_bug_report,
    "lspci": lspci.lspci,
    "dmesg": kernel_log.dmesg,
    "journalctl": kernel_log.journalctl,
    "ibstat": infiniband.ibstat,
    "ibv_devinfo": infiniband.ibv_devinfo,
    "ethtool": ethtool.ethtool,
    "mlnx_qos": infiniband.mlnx_qos,
    "mlxlink": mlxlink.mlxlink,
    "ipmitool": ipmitool.ipmitool,
    "dmidecode": dmidecode.dmidecode,
    "nvme": storage.nvme,
    "modinfo": software.modinfo,
    "dkms": software.dkms,
    "nv-fabricmanager": software.nv_fabricmanager,
    "nvidia-imex-ctl": software.nvidia_imex_ctl,
    "systemctl": systemd.systemctl,
    "dpkg-query": debian.dpkg_query,
    "dpkg": debian.dpkg,
    "apt-get": debian.apt_get,
    "apt-mark": debian.apt_mark,
    "apt-cache": debian.apt_cache,
    "curl": repositories.curl,
    "sysctl": kernel.sysctl,
    "hostname": host.hostname,
    "uname": host.uname,
    "id": host.id_,
    "whoami": host.whoami,
    "df": host.df,
    "find": processes.find,
    "timedatectl": host.timedatectl,
    "chronyc": host.chronyc,
}


def run(node: Node, program: str, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``program WORDS`` prints on ``node``."""
    return PROGRAMS[program](node, words, root=root)
