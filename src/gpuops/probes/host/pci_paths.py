"""The way to each GPU, RDMA device and NVMe disk down the PCI bus, as /sys/devices spells it.

``../../../../devices/pci0000:15/0000:15:01.0/0000:1b:00.0`` is 0000:1b:00.0 below the root port 0000:15:01.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_DRIVERS = ("nvidia", "mlx5_core", "nvme")
_ADDRESS = re.compile(r"[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}\.[0-7]", re.ASCII)


def addresses_in(target: str) -> tuple[str, ...]:
    """Return the PCI addresses in a path of /sys/devices, from the root port down."""
    return tuple(part for part in target.split("/") if _ADDRESS.fullmatch(part))


def parse_pci_paths(text: str) -> dict[str, tuple[str, ...]] | Unknown:
    """Return the addresses above each device, from the root port down; none if no driver has such a device."""
    files = read_files(text)
    if "/sys/bus/pci/drivers" not in files:
        return Unknown("/sys/bus/pci/drivers cannot be read")
    return _bridges_by_device(files, "")


def parse_gpu_bridges(text: str) -> dict[str, tuple[str, ...]] | Unknown:
    """Return the bridges above each GPU of the NVIDIA driver, the nearest first."""
    bridges = _bridges_by_device(read_files(text), "/sys/bus/pci/drivers/nvidia/")
    nearest_first = {gpu: above[::-1] for gpu, above in bridges.items()}
    return nearest_first or Unknown("the kernel lists no GPU under the NVIDIA driver")


def _bridges_by_device(files: Mapping[str, str], folder: str) -> dict[str, tuple[str, ...]]:
    links = ((path.rpartition("/")[2], target) for path, target in files.items() if path.startswith(folder))
    return {device: addresses_in(target)[:-1] for device, target in links if _ADDRESS.fullmatch(device)}


pci_paths: Probe[dict[str, tuple[str, ...]]] = Probe(
    "pci_paths",
    # the directory proves that we could look where nothing else is there
    Files(("/sys/bus/pci/drivers", *(f"/sys/bus/pci/drivers/{driver}/*:*" for driver in _DRIVERS))),
    lambda answer: parse_pci_paths(answer.out),
)
"""The bridges above each GPU, RDMA device and NVMe disk."""

gpu_bridges: Probe[dict[str, tuple[str, ...]]] = Probe(
    "gpu_bridges", pci_paths.question, lambda answer: parse_gpu_bridges(answer.out), cost="slow"
)
"""Root ports and PCIe switches above each GPU, by its address."""
