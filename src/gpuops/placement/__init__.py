"""Maps every rank of a layout to a node, a GPU, a NIC and a NUMA node; pure."""

from gpuops.placement.choice import place, usable_gpus
from gpuops.placement.meeting import Meeting, meeting_of
from gpuops.placement.network import NodeNetwork
from gpuops.placement.placement import Link, Placement, Rank
from gpuops.placement.shape import (
    SHAPE_PROBES,
    GpuShape,
    NodeShape,
    declared_by,
    declared_shape,
    largest_domain,
    shape_of,
)
from gpuops.placement.substitution import substitute
from gpuops.placement.traffic import Crossing, LinkSpeeds, Tier, speeds_of, tier_of

__all__ = [
    "SHAPE_PROBES",
    "Crossing",
    "GpuShape",
    "Link",
    "LinkSpeeds",
    "Meeting",
    "NodeNetwork",
    "NodeShape",
    "Placement",
    "Rank",
    "Tier",
    "declared_by",
    "declared_shape",
    "largest_domain",
    "meeting_of",
    "place",
    "shape_of",
    "speeds_of",
    "substitute",
    "tier_of",
    "usable_gpus",
]
