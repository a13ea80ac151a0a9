"""Maps every rank of a layout to a node, a GPU, a NIC and a NUMA node; pure."""

from gpuops.placement.choice import place, usable_gpus
from gpuops.placement.placement import Link, Placement, Rank
from gpuops.placement.shape import GpuShape, NodeShape, declared_shape, largest_domain, shape_of
from gpuops.placement.substitution import substitute
from gpuops.placement.traffic import Crossing, LinkSpeeds, Tier, speeds_of, tier_of

__all__ = [
    "Crossing",
    "GpuShape",
    "Link",
    "LinkSpeeds",
    "NodeShape",
    "Placement",
    "Rank",
    "Tier",
    "declared_shape",
    "largest_domain",
    "place",
    "shape_of",
    "speeds_of",
    "substitute",
    "tier_of",
    "usable_gpus",
]
