"""Wiring: simulated fabrics, from how many nodes share their leaves and how many leaves they share."""

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
    """How a simulated fabric is cabled.

    Every ``unit`` nodes share ``leaves`` leaves, which take the rails in equal shares: as many leaves as GPUs is a
    rail-optimised fabric. A leaf has 1/``oversubscription`` of its ports' bandwidth towards the spine. ``shuffled``:
    neighbours in the inventory are not neighbours in the fabric. `InputError` where this is no fabric.
    """

    nodes: int = 128
    gpus: int = 8
    unit: int = 16
    leaves: int = 8
    oversubscription: float = 1.0
    shuffled: bool = False

    def __post_init__(self) -> None:
        if min(self.nodes, self.gpus, self.unit, self.leaves) < 1 or self.oversubscription < 1:
            raise InputError("a simulated fabric needs at least one node, GPU, leaf and node of a unit each")
        if self.gpus % self.leaves:
            raise InputError(f"{self.gpus} rails cannot be shared equally by {self.leaves} leaves of a unit")


def build_fabric(wiring: Cabling) -> Fabric:
    """The fabric, nodes named ``gpu000`` onwards, leaves ``L0`` onwards in the order of the inventory's units."""
    return _wire(replace(wiring, oversubscription=1.0))


@functools.lru_cache(maxsize=64)
def _wire(wiring: Cabling) -> Fabric:
    seats = list(range(wiring.nodes))
    if wiring.shuffled:
        random.Random(wiring.nodes).shuffle(seats)  # noqa: S311 - reproducible on purpose
    units: dict[int, int] = {}
    width = max(3, len(str(wiring.nodes - 1)))
    nodes = (
        _node(f"gpu{number:0{width}}", units.setdefault(seat // wiring.unit, len(units)), wiring)
        for number, seat in enumerate(seats)
    )
    return Fabric({node.name: node for node in nodes})


def _node(name: str, unit: int, wiring: Cabling) -> FabricNode:
    rails = range(wiring.gpus)
    leaves = [f"L{unit * wiring.leaves + rail * wiring.leaves // wiring.gpus}" for rail in rails]
    return FabricNode(
        name, tuple(rails), tuple(FabricNic(f"mlx5_{rail}", rail, LINE_GB_PER_S, leaves[rail]) for rail in rails)
    )


def wire_unmapped(wiring: Cabling) -> Fabric:
    """The same fabric as a user sees it who does not know the leaves."""
    return _wire_unmapped(replace(wiring, oversubscription=1.0))


@functools.lru_cache(maxsize=64)
def _wire_unmapped(wiring: Cabling) -> Fabric:
    nodes = _wire(wiring).nodes.values()
    bare = (replace(node, nics=tuple(replace(nic, leaf=None) for nic in node.nics)) for node in nodes)
    return Fabric({node.name: node for node in bare})
