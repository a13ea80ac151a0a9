"""The way to each GPU, RDMA device and NVMe disk down the PCI bus, as /sys/devices spells it.

``../../../../devices/pci0000:15/0000:15:01.0/0000:1b:00.0`` is 0000:1b:00.0 below the root port 0000:15:01.0.
"""

from __future__ import annotations

import re

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_DRIVERS = ("nvidia", "mlx5_core", "nvme")
_ADDRESS = re.compile(r"[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}\.[0-7]", re.ASCII)


def parse_pci_paths(text: str) -> dict[str, tuple[str, ...]] | Unknown:
    """Return the addresses above each device, from the root port down; none if no driver has such a device."""
    files = read_files(text)
    if "/sys/bus/pci/drivers" not in files:
        return Unknown("/sys/bus/pci/drivers cannot be read")
    return {
        path.rpartition("/")[2]: tuple(_ADDRESS.findall(target))[:-1]
        for path, target in files.items()
        if _ADDRESS.fullmatch(path.rpartition("/")[2])
    }


pci_paths: Probe[dict[str, tuple[str, ...]]] = Probe(
    "pci_paths",
    # the directory proves that we could look where nothing else is there
    Files(("/sys/bus/pci/drivers", *(f"/sys/bus/pci/drivers/{driver}/*:*" for driver in _DRIVERS))),
    lambda answer: parse_pci_paths(answer.out),
)
"""The bridges above each GPU, RDMA device and NVMe disk."""
