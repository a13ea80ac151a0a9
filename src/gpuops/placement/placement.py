"""The location of every rank of a layout, its groups, and the link that each group uses."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from gpuops.layout import AXES, Layout
from gpuops.placement.meeting import Meeting, meeting_of
from gpuops.placement.shape import GpuShape, NodeShape
from gpuops.placement.traffic import Crossing
from gpuops.probes.nvidia.topo import link_distance
from gpuops.reasons import Conclusion, Excluded, FailOn, Result

LinkKind = Literal["nvlink", "pcie", "rail", "network", "unknown"]


@dataclass(frozen=True)
class Rank:
    """One process: its GPU (by index on its node), the nearest NIC and NUMA node, and its coordinates."""

    rank: int
    node: str
    local_rank: int
    gpu: int
    nic: str | None
    numa: int | None
    dp: int
    pp: int
    tp: int
    cp: int
    ep: int


@dataclass(frozen=True)
class Link:
    """The weakest link that a group of ranks uses.

    ``path`` is nvidia-smi's word for a link inside a node: ``NV18``, ``PIX``, … A rail has its number, and its ``leaf``
    if one switch connects all NICs of the group.
    """

    kind: LinkKind
    path: str = ""
    rail: int | None = None
    leaf: str | None = None

    def __str__(self) -> str:
        """Return ``NV18``, ``PIX``, …, ``NVLink`` between nodes, ``rail 3, leaf L3`` or ``network``."""
        if self.kind == "rail":
            return f"rail {self.rail}" if self.leaf is None else f"rail {self.rail}, leaf {self.leaf}"
        return self.path or ("NVLink" if self.kind == "nvlink" else self.kind)


@dataclass(frozen=True)
class Placement(Result):
    """Ranks on nodes. ``nodes`` are in rank order, each with the GPUs that it uses, in the order of local ranks.

    ``spares`` are unused nodes; ``notes`` are sentences on what is not used and what is ``torn``; ``excluded`` are the
    nodes that were left out. ``moved`` names the node that took the place of each lost one, and ``replaced`` are all
    nodes that the job has lost so far.
    """

    SCHEMA: ClassVar[str] = "gpuops.placement/1"
    layout: Layout
    ranks: tuple[Rank, ...]
    nodes: tuple[NodeShape, ...]
    spares: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    torn: tuple[Crossing, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict, hash=False)
    replaced: tuple[str, ...] = ()
    excluded: Mapping[str, Excluded] = field(default_factory=dict, hash=False)

    @functools.cached_property
    def meeting(self) -> Meeting:
        """Where its ranks meet."""
        return meeting_of(self.nodes)

    @functools.cached_property
    def groups(self) -> dict[str, list[list[int]]]:
        """The rank groups of every axis, each in the order of its coordinate; with HSDP also those within dp."""
        hybrid = ("dp_shard", "dp_replicate") if self.layout.dp_replicate > 1 else ()
        return {axis: [list(group) for group in self.layout.groups(axis)] for axis in (*AXES, *hybrid)}

    def on(self, node: str) -> tuple[Rank, ...]:
        """Return the ranks of ``node``, by local rank."""
        return self._by_node.get(node, ())

    @functools.cached_property
    def _by_node(self) -> dict[str, tuple[Rank, ...]]:
        ranks_by_node: dict[str, list[Rank]] = {}
        for rank in self.ranks:
            ranks_by_node.setdefault(rank.node, []).append(rank)
        return {node: tuple(ranks) for node, ranks in ranks_by_node.items()}

    def location(self, rank: int) -> tuple[NodeShape, GpuShape]:
        """Return the node and the GPU of ``rank``."""
        return self._locations[rank]

    @functools.cached_property
    def _locations(self) -> tuple[tuple[NodeShape, GpuShape], ...]:
        return tuple((node, gpu) for node in self.nodes for gpu in node.gpus)

    def link(self, ranks: Sequence[int]) -> Link | None:
        """Return the weakest link of a group; None for a single rank.

        It is NVLink between nodes if the group stays in one NVLink domain.
        """
        locations = [self.location(rank) for rank in ranks]
        nodes = {node.name for node, _ in locations}
        if len(nodes) == 1:
            return _link_inside(locations[0][0].link([gpu.index for _, gpu in locations]))
        if len({node.nvlink_domain(gpu) for node, gpu in locations}) == 1:
            return Link("nvlink")
        rails, leaves = {gpu.rail for _, gpu in locations}, {gpu.leaf for _, gpu in locations}
        rail, leaf = rails.pop(), leaves.pop()
        if rails or rail is None:
            return Link("network")
        return Link("rail", rail=rail, leaf=None if leaves else leaf)

    def to_document(self) -> dict[str, Any]:
        """Return the placement as plain data."""
        return {
            "schema": self.SCHEMA,
            "layout": str(self.layout),
            "order": self.layout.order,
            "ranks": [dict(vars(rank)) for rank in self.ranks],
            "groups": self.groups,
            "nodes": [
                {
                    "name": node.name,
                    "address": node.address,
                    "rack": node.rack,
                    "gpus": [gpu.index for gpu in node.gpus],
                }
                for node in self.nodes
            ],
            "spares": list(self.spares),
            "notes": list(self.notes),
            "moved": dict(self.moved),
            "torn": [asdict(crossing) for crossing in self.torn],
            "excluded": {node: reason.to_document() for node, reason in self.excluded.items()},
        }

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``ok``: every rank has its GPU."""
        return "ok"


def _link_inside(path: str) -> Link | None:
    """Return the link that nvidia-smi calls ``path``; None if there is no other GPU to reach."""
    if not path:
        return None
    kind: LinkKind = "nvlink" if path.startswith("NV") else "pcie" if link_distance(path) < math.inf else "unknown"
    return Link(kind, path)
