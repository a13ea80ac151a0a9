"""Fabric: the nodes under test with their GPUs and NICs, and the leaf switch that each NIC's port is cabled to.

A part bears one name everywhere, whether it is planted in a simulation or accused of a real fault: ``gpu017`` (a node),
``gpu017:gpu3`` (that GPU's NVLink), ``gpu017:mlx5_3`` (an HCA with its port and cable), ``leaf:L3``, ``unit:U2/rail3``
(what joins rail 3 of unit U2 to the spine) and ``spine``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Nic:
    """One RDMA device, or a plain network interface, with its line rate in GB/s. ``leaf`` None: not known."""

    name: str
    rail: int
    gb_per_s: float
    leaf: str | None = None


@dataclass(frozen=True)
class Node:
    """One node: the indices of its GPUs, and its NICs in the order of rails; GPU k is measured through ``nics[k]``."""

    name: str
    gpus: tuple[int, ...]
    nics: tuple[Nic, ...]

    def nic(self, rail: int) -> Nic | None:
        """The NIC on ``rail``; None where this node has none there."""
        return next((nic for nic in self.nics if nic.rail == rail), None)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The leaves that its ports share, sorted; empty where one of them is not known."""
        known = [nic.leaf for nic in self.nics if nic.leaf is not None]
        return tuple(sorted(set(known))) if len(known) == len(self.nics) else ()


@dataclass(frozen=True)
class Fabric:
    """The nodes by name, in the order of the inventory. A unit is the set of nodes whose ports share their leaves."""

    nodes: Mapping[str, Node] = field(hash=False)

    @functools.cached_property
    def rails(self) -> tuple[int, ...]:
        """Every rail on which a node has a NIC."""
        return tuple(sorted({nic.rail for node in self.nodes.values() for nic in node.nics}))

    @functools.cached_property
    def units(self) -> dict[str, tuple[str, ...]]:
        """The nodes of each unit, ``U0`` first; nodes whose leaves are not known are in no unit."""
        alike: dict[tuple[str, ...], list[str]] = {}
        for node in self.nodes.values():
            if node.leaves:
                alike.setdefault(node.leaves, []).append(node.name)
        return {f"U{number}": tuple(names) for number, names in enumerate(alike.values())}

    @functools.cached_property
    def unit_of(self) -> dict[str, str]:
        """The unit of each node; a node whose leaves are not known is absent."""
        return {name: unit for unit, names in self.units.items() for name in names}

    def part(self, node: str, rail: int) -> str:
        """The name of the HCA that serves ``rail`` of ``node``."""
        nic = self.nodes[node].nic(rail)
        return f"{node}:{nic.name}" if nic else f"{node}:rail{rail}"
