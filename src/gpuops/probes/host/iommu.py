"""IOMMUs of the node, and how they treat RDMA devices: ``identity`` leaves addresses alone, ``DMA`` translates them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_UNIT = re.compile(r"/sys/class/iommu/([^/]+)")
_TYPE = re.compile(r"/sys/class/infiniband/([^/]+)/device/iommu_group/type")


@dataclass(frozen=True)
class Iommu:
    """Active IOMMUs (``dmar0``, ``ivhd0``, ``smmu3.0x…``), and the kind of domain of each RDMA device that has one."""

    units: tuple[str, ...] = ()
    domain_by_device: Mapping[str, str] = field(default_factory=dict, hash=False)


def parse_iommu(text: str) -> Iommu | Unknown:
    """Return the IOMMUs; none if the kernel uses none."""
    files = read_files(text)
    if "/sys/class" not in files:
        return Unknown("/sys/class cannot be read")
    units = tuple(match[1] for match in map(_UNIT.fullmatch, files) if match)
    domains = {match[1]: files[match[0]].strip() for match in map(_TYPE.fullmatch, files) if match}
    return Iommu(units, domains)


iommu: Probe[Iommu] = Probe(
    "iommu",
    Files(
        (
            "/sys/class",  # proves that we could look, even if there is nothing else
            "/sys/class/iommu/*",
            "/sys/class/infiniband/*/device/iommu_group/type",
        ),
        limit_bytes=64,
    ),
    lambda answer: parse_iommu(answer.out),
)
"""IOMMUs that translate addresses of devices."""
