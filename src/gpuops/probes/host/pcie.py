"""PCIe links of GPUs and RDMA devices from /sys, which every user can read without any tool.

``current_link_speed`` of ``32.0 GT/s PCIe`` is a ``speed_gt_per_s`` of 32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gpuops.probes.numbers import integer, number
from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_LEAVES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "numa_node")
_WIDEST = 32  # a card that is off the bus returns all ones, which read as width 63


@dataclass(frozen=True, slots=True)
class PcieLink:
    """One link; a field is None if the kernel does not report it (a virtual machine, or a card that is off the bus).

    ``numa_node`` is None if the machine has no NUMA or its firmware does not report it.
    """

    address: str
    speed_gt_per_s: float | None
    width: int | None
    max_speed_gt_per_s: float | None
    max_width: int | None
    numa_node: int | None


@lru_cache(maxsize=16)  # idle nodes of one model return the same text
def parse_pcie(text: str) -> dict[str, PcieLink] | Unknown:
    """Return the links by PCI address for GPUs, by RDMA device name (``mlx5_0``) for NICs."""
    files = read_files(text)
    folders = dict.fromkeys(folder for folder, _, leaf in (p.rpartition("/") for p in files) if leaf in _LEAVES)
    links = {folder.removesuffix("/device").rpartition("/")[2]: _link(folder, files) for folder in folders}
    return links or Unknown("the kernel lists no GPU under the NVIDIA driver and no RDMA device")


def _link(folder: str, files: Mapping[str, str]) -> PcieLink:
    values = {leaf: files.get(f"{folder}/{leaf}") for leaf in _LEAVES}
    node = integer(values["numa_node"])
    return PcieLink(
        address=canonical_address(files.get(folder, folder).rpartition("/")[2]) or "",
        speed_gt_per_s=number(values["current_link_speed"]),
        width=_width(values["current_link_width"]),
        max_speed_gt_per_s=number(values["max_link_speed"]),
        max_width=_width(values["max_link_width"]),
        numa_node=node if node is not None and node >= 0 else None,
    )


def _width(text: str | None) -> int | None:
    lanes = integer(text)
    return lanes if lanes is not None and 0 < lanes <= _WIDEST else None


pcie: Probe[dict[str, PcieLink]] = Probe(
    "pcie",
    Files(
        (
            *(f"/sys/bus/pci/drivers/nvidia/*/{leaf}" for leaf in _LEAVES),
            "/sys/class/infiniband/*/device",
            *(f"/sys/class/infiniband/*/device/{leaf}" for leaf in _LEAVES),
        )
    ),
    lambda answer: parse_pcie(answer.out),
)
"""Links of the GPUs that the NVIDIA driver manages, and of the RDMA devices."""
