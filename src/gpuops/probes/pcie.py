"""The PCIe links of GPUs and RDMA devices as the kernel knows them: readable by anybody, no tool needed."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files

_LEAVES = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "numa_node")


@dataclass(frozen=True, slots=True)
class PcieLink:
    """One link; None: the kernel does not say (a virtual machine, or a card that is off the bus).

    ``numa_node`` None: the machine has no NUMA, or its firmware does not tell.
    """

    address: str
    speed_gt_per_s: float | None
    width: int | None
    max_speed_gt_per_s: float | None
    max_width: int | None
    numa_node: int | None


def parse_pcie(text: str) -> dict[str, PcieLink] | Unknown:
    """Links by PCI address for GPUs, by RDMA device name (``mlx5_0``) for NICs."""
    return Unknown(f"not read yet: {text[:20]}")


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
