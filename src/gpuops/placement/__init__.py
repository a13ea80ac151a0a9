"""Maps every rank of a layout to a node, a GPU, a NIC and a NUMA node; pure."""

from gpuops.placement.choice import place, usable_gpus
from gpuops.placement.placement import Link, Placement, Rank
from gpuops.placement.shape import GpuShape, NodeShape, declared_shape, largest_domain, shape_of

__all__ = [
    "GpuShape",
    "Link",
    "NodeShape",
    "Placement",
    "Rank",
    "declared_shape",
    "largest_domain",
    "place",
    "shape_of",
    "usable_gpus",
]
