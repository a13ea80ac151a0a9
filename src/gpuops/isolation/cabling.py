"""Simulated fabrics, described by the number of nodes that share leaves and the number of leaves that they share."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass, replace

from gpuops.errors import InputError
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode

LINE_GB_PER_S = 50.0
"""NDR InfiniBand and 400G Ethernet: 400 Gbit/s."""


@dataclass(frozen=True)
class Cabling:
    """The cabling of a simulated fabric.

    Every ``unit`` nodes share ``leaves`` leaves, which divide the rails evenly: as many leaves as GPUs is a
    rail-optimised fabric. A leaf has 1/``oversubscription`` of its ports' bandwidth towards the spine. If ``shuffled``,
    neighbours in the inventory are not neighbours in the fabric. Raise `InputError` if the numbers describe no fabric.
    """

    nodes: int = 128
    gpus: int = 8
    unit: int = 16
    leaves: int = 8
    oversubscription: float = 1.0
    shuffled: bool = False

    def __post_init__(self) -> None:
        if min(self.nodes, self.gpus, self.unit, self.leaves) < 1 or self.oversubscription < 1:
            raise InputError("a simulated fabric needs at least 1 node, 1 GPU per node, 1 leaf and 1 node per unit")
        if self.gpus % self.leaves:
            wrong = f"cannot divide {self.gpus} rails evenly among {self.leaves} leaves"
            raise InputError(f"{wrong}; use a number of leaves that divides {self.gpus}")


def build_fabric(cabling: Cabling) -> Fabric:
    """Build the fabric, nodes named ``gpu000`` onwards, leaves ``L0`` onwards in the order of the inventory's units."""
    return _build(replace(cabling, oversubscription=1.0))


@functools.lru_cache(maxsize=64)
def _build(cabling: Cabling) -> Fabric:
    positions = list(range(cabling.nodes))
    if cabling.shuffled:
        random.Random(cabling.nodes).shuffle(positions)  # noqa: S311 - reproducible on purpose
    units: dict[int, int] = {}
    width = max(3, len(str(cabling.nodes - 1)))
    nodes = (
        _node(f"gpu{number:0{width}}", units.setdefault(position // cabling.unit, len(units)), cabling)
        for number, position in enumerate(positions)
    )
    return Fabric({node.name: node for node in nodes})


def _node(name: str, unit: int, cabling: Cabling) -> FabricNode:
    rails = range(cabling.gpus)
    leaves = [f"L{unit * cabling.leaves + rail * cabling.leaves // cabling.gpus}" for rail in rails]
    return FabricNode(
        name, tuple(rails), tuple(FabricNic(f"mlx5_{rail}", rail, LINE_GB_PER_S, leaves[rail]) for rail in rails)
    )


def build_unmapped_fabric(cabling: Cabling) -> Fabric:
    """Build the same fabric for an inventory that does not declare the leaves."""
    return _build_unmapped(replace(cabling, oversubscription=1.0))


@functools.lru_cache(maxsize=64)
def _build_unmapped(cabling: Cabling) -> Fabric:
    nodes = _build(cabling).nodes.values()
    unmapped = (replace(node, nics=tuple(replace(nic, leaf=None) for nic in node.nics)) for node in nodes)
    return Fabric({node.name: node for node in unmapped})
