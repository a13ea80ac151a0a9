"""Maps every rank of a layout to a node, a GPU, a NIC and a NUMA node; pure."""

from gpuops.placement.choice import place
from gpuops.placement.placement import Link, Placement, Rank
from gpuops.placement.shape import GpuShape, NodeShape, largest_domain, shape_of

__all__ = ["GpuShape", "Link", "NodeShape", "Placement", "Rank", "largest_domain", "place", "shape_of"]
