"""The nodes under test with their GPUs and NICs, and the leaf switch that each NIC's port is cabled to.

A part has the same name whether its fault is simulated or real: ``gpu017`` (a node), ``gpu017:gpu3`` (that GPU's
NVLink), ``gpu017:mlx5_3`` (an HCA with its port and cable), ``leaf:L3``, ``unit:U2/rail3`` (what joins rail 3 of unit
U2 to the spine) and ``spine``. A unit is a scalable unit: the nodes that share leaf switches.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

_MAX_GUESSED = 16
"""Number of nodes in a block if no leaf is known: the smallest common scalable unit."""


@dataclass(frozen=True)
class FabricNic:
    """An RDMA device, or a plain network interface, with its line rate in GB/s. ``leaf`` is None if it is unknown.

    ``link_layer`` is ``InfiniBand`` or ``Ethernet``, empty if it is unknown.
    """

    name: str
    rail: int
    gb_per_s: float
    leaf: str | None = None
    link_layer: str = ""


@dataclass(frozen=True)
class FabricNode:
    """One node: the indices of its GPUs, and its NICs in the order of rails; GPU k is measured through ``nics[k]``.

    ``unit`` is the name that a user gave its unit; None if there is none.
    """

    name: str
    gpus: tuple[int, ...]
    nics: tuple[FabricNic, ...]
    unit: str | None = None

    def nic(self, rail: int) -> FabricNic | None:
        """Return the NIC on ``rail``; None if this node has none there."""
        return next((nic for nic in self.nics if nic.rail == rail), None)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The leaves that its ports share, sorted; empty if one of them is unknown."""
        leaves = [nic.leaf for nic in self.nics if nic.leaf is not None]
        return tuple(sorted(set(leaves))) if len(leaves) == len(self.nics) else ()


@dataclass(frozen=True, eq=False)
class Fabric:
    """The nodes by name, in inventory order. A unit is the set of nodes whose ports share their leaves.

    Values derived from a fabric are cached by identity: a fabric equals only itself, because comparing two fabrics of
    thousands of nodes is slow.
    """

    nodes: Mapping[str, FabricNode]

    @functools.lru_cache(maxsize=16)  # noqa: B019 - bounded; the same one again
    def without(self, nodes: frozenset[str]) -> Fabric:
        """Return the same without ``nodes``."""
        return Fabric({name: node for name, node in self.nodes.items() if name not in nodes})

    @functools.lru_cache(maxsize=16)  # noqa: B019 - bounded; the same one again
    def with_slower_rail(self, rail: int, kept: float) -> Fabric:
        """Return the same with the fraction ``kept`` of the line rate on ``rail``; an unknown rate counts as 1."""
        nodes = {
            name: replace(
                node,
                nics=tuple(replace(n, gb_per_s=kept * (n.gb_per_s or 1.0)) if n.rail == rail else n for n in node.nics),
            )
            for name, node in self.nodes.items()
        }
        return Fabric(nodes)

    @functools.cached_property
    def rails(self) -> tuple[int, ...]:
        """Every rail on which a node has a NIC."""
        return tuple(sorted({nic.rail for node in self.nodes.values() for nic in node.nics}))

    @functools.cached_property
    def units(self) -> dict[str, tuple[str, ...]]:
        """The nodes of each unit, by its stated name, else ``U0`` and so on; nodes with unknown leaves are in no unit.

        The leaves decide: a node that lacks a NIC is in the unit that has all of its leaves. If no leaf is known, the
        stated units decide.
        """
        by_leaves = self._nodes_by_leaves()
        if not by_leaves:
            stated: dict[str, list[str]] = {}
            for node in self.nodes.values():
                if node.unit is not None:
                    stated.setdefault(node.unit, []).append(node.name)
            return {unit: tuple(names) for unit, names in stated.items()}
        said = [{self.nodes[name].unit for name in names} for names in by_leaves]
        names = [min(own, key=str) if len(own) == 1 and said.count(own) == 1 else None for own in said]
        taken = set(names)
        free = (name for name in map("U{}".format, itertools.count()) if name not in taken)
        return {name or next(free): tuple(own) for name, own in zip(names, by_leaves, strict=True)}

    def _nodes_by_leaves(self) -> list[list[str]]:
        """Return the nodes whose ports share their leaves, in inventory order."""
        leaf_sets = dict.fromkeys(frozenset(node.leaves) for node in self.nodes.values() if node.leaves)
        whole = [leaves for leaves in leaf_sets if not any(leaves < others for others in leaf_sets)]
        nodes: dict[frozenset[str], list[str]] = {}
        for node in self.nodes.values():
            if node.leaves:
                own = frozenset(node.leaves)
                nodes.setdefault(own if own in whole else next(w for w in whole if own < w), []).append(node.name)
        return list(nodes.values())

    @functools.cached_property
    def unit_of(self) -> dict[str, str]:
        """The unit of each node; nodes with unknown leaves are absent."""
        return {name: unit for unit, names in self.units.items() for name in names}

    @functools.cached_property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """The units, then blocks of neighbours of the other nodes; at least two blocks if there are two nodes.

        Nodes with unknown leaves are assumed to share some with their neighbours in the inventory. This is a guess:
        pairs are made by it, but no part is blamed by it.
        """
        unmapped = [name for name in self.nodes if name not in self.unit_of]
        size = max(1, min(_MAX_GUESSED, len(unmapped) // 2))
        neighbours = (tuple(unmapped[start : start + size]) for start in range(0, len(unmapped), size))
        return (*self.units.values(), *neighbours)

    @functools.cached_property
    def block_of(self) -> dict[str, int]:
        """The number of each node's block."""
        return {name: number for number, names in enumerate(self.blocks) for name in names}

    def leaves_block(self, names: Iterable[str]) -> bool:
        """Return True if the nodes are in several blocks."""
        return len({self.block_of[name] for name in names}) > 1

    @functools.cached_property
    def rates(self) -> dict[tuple[str, int], float]:
        """The line rate of each NIC in GB/s, by node and rail."""
        return {(node.name, nic.rail): nic.gb_per_s for node in self.nodes.values() for nic in node.nics}

    @functools.cached_property
    def node_rates(self) -> dict[str, float]:
        """The line rate of all NICs of each node in GB/s."""
        return {node.name: sum(nic.gb_per_s for nic in node.nics) for node in self.nodes.values()}

    @functools.cached_property
    def leaf_of(self) -> dict[tuple[str, int], str]:
        """The leaf of each port, by node and rail; ports with unknown leaves are absent."""
        ports = ((node.name, nic) for node in self.nodes.values() for nic in node.nics)
        return {(name, nic.rail): nic.leaf for name, nic in ports if nic.leaf is not None}

    @functools.cached_property
    def ports_of(self) -> dict[str, tuple[tuple[str, int], ...]]:
        """The ports of each leaf, as node and rail, in inventory order."""
        ports: dict[str, list[tuple[str, int]]] = {}
        for port, leaf in self.leaf_of.items():
            ports.setdefault(leaf, []).append(port)
        return {leaf: tuple(leaf_ports) for leaf, leaf_ports in ports.items()}

    def part(self, node: str, rail: int) -> str:
        """Return the name of the HCA that serves ``rail`` of ``node``."""
        nic = self.nodes[node].nic(rail)
        return f"{node}:{nic.name}" if nic else f"{node}:rail{rail}"
