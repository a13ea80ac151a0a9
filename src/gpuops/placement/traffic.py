"""What a placement costs: the traffic of every axis, over the slowest link that its groups cross."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gpuops.layout import Layout
from gpuops.placement.shape import NodeShape

Tier = Literal["node", "domain", "rack", "unit", "spine"]
TIERS: tuple[Tier, ...] = ("node", "domain", "rack", "unit", "spine")
"""From near to far: one node, one NVLink domain of several nodes, one rack, one set of leaf switches, the spine."""
_BETWEEN_NODES: tuple[Tier, ...] = ("rack", "unit", "spine")
_LAYERS, _HIDDEN, _SEQUENCE, _BYTES = 80, 8192, 4096, 2
"""The model that weighs the axes against each other: Llama 2 70B (arXiv:2307.09288, table 1), in bf16."""


@dataclass(frozen=True)
class LinkSpeeds:
    """Bandwidth of a GPU over each tier, in GB/s.

    The defaults are nominal: NVLink 4 in one direction (H100 datasheet: 900 GB/s in both), a port of 400 Gbit/s, and
    less beyond the rack and the leaf, where others share the links. Only their ratios matter.
    """

    node: float = 450.0
    domain: float = 450.0
    rack: float = 50.0
    unit: float = 48.0
    spine: float = 32.0

    def of(self, tier: Tier) -> float:
        """Return the bandwidth over ``tier``."""
        return float(getattr(self, tier))


def tier_of(nodes: Sequence[NodeShape]) -> Tier:
    """Return the nearest tier that holds all of ``nodes``."""
    first = nodes[0]
    if all(node.name == first.name for node in nodes):
        return "node"
    if all(node.domain == first.domain for node in nodes):
        return "domain"
    if any(node.leaves != first.leaves for node in nodes):
        return "spine"
    return "rack" if all(node.rack == first.rack for node in nodes) else "unit"


def bytes_per_axis(layout: Layout) -> dict[str, float]:
    """Return what a rank sends along each axis in one step, in bytes, for a model of 70 billion parameters.

    Tensor parallelism has four all-reduces per layer and micro-batch (Megatron-LM, arXiv:1909.08053, section 3),
    experts four all-to-alls (arXiv:2006.16668), context parallelism passes keys and values around (arXiv:2310.01889),
    a stage sends activations forward and gradients back, and replicas reduce gradients once; ZeRO 3 also gathers
    parameters twice (arXiv:1910.02054, section 7). With HSDP the replicas that share states do this, and copies of a
    part reduce its gradients.
    """
    activation = layout.chunks * layout.mbs * _SEQUENCE / layout.cp * _HIDDEN * _BYTES
    layers, gathers = _LAYERS / layout.pp, 1.5 if layout.zero == 3 else 1
    gradient = 12 * _LAYERS * _HIDDEN**2 * _BYTES / (layout.tp * layout.pp)
    return {
        "tp": 4 * layers * activation * _ring(layout.tp) / (layout.tp if layout.sequence_parallel else 1),
        "cp": 4 * layers * activation * (layout.cp - 1),
        "ep": 4 * layers * activation * (layout.ep - 1) / layout.ep,
        "dp": gradient * _ring(layout.dp) * gathers,
        "dp_shard": gradient * _ring(layout.dp_shard) * gathers,
        "dp_replicate": gradient / (layout.dp_shard * layout.cp) * _ring(layout.dp_replicate),
        "pp": 2 * activation * layout.vpp,
    }


def _ring(ranks: int) -> float:
    """Return what a rank sends in a ring all-reduce, per byte: 2(n-1)/n."""
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True)
class Contact:
    """Positions in the order of nodes that one axis connects, how many of its groups do, and the cost per s/GB."""

    axis: str
    positions: tuple[int, ...]
    groups: int
    weight: float


def contacts_of(layout: Layout, sizes: Sequence[int]) -> list[Contact]:
    """Return what connects nodes that hold ``sizes`` ranks each, in rank order.

    A pipeline connects neighbouring stages, and with ``vpp`` the last to the first; every other group is a whole.
    """
    position_of = [position for position, size in enumerate(sizes) for _ in range(size)]
    traffic, contacts = bytes_per_axis(layout), []
    data = ("dp_shard", "dp_replicate") if layout.dp_replicate > 1 else ("dp",)
    for axis in ("tp", "cp", "ep", *data, "pp"):
        if getattr(layout, axis) == 1:
            continue
        groups = [tuple(dict.fromkeys(position_of[rank] for rank in group)) for group in _connected(layout, axis)]
        contacts += [
            Contact(axis, positions, count, traffic[axis] * count / len(groups))
            for positions, count in Counter(groups).items()
            if len(positions) > 1
        ]
    return contacts


def _connected(layout: Layout, axis: str) -> Iterator[tuple[int, ...]]:
    for group in layout.groups(axis):
        if axis != "pp":
            yield group
            continue
        yield from itertools.pairwise(group)
        if layout.vpp > 1 and len(group) > 2:
            yield (group[-1], group[0])


def cost(contacts: Sequence[Contact], nodes: Sequence[NodeShape], speeds: LinkSpeeds) -> float:
    """Return the seconds that all ``contacts`` take over the links between ``nodes``, in rank order."""
    seconds_per_byte = {tier: 1e-9 / speeds.of(tier) for tier in TIERS}
    return math.fsum(
        contact.weight * seconds_per_byte[tier_of([nodes[position] for position in contact.positions])]
        for contact in contacts
    )


@dataclass(frozen=True)
class Crossing:
    """Groups of ``axis`` (of a pipeline: neighbours) that reach as far as ``tier``: ``count`` of ``total``."""

    axis: str
    tier: Tier
    count: int
    total: int

    def __str__(self) -> str:
        """Return a sentence such as ``2 of 8 ep groups cross the spine``."""
        what = "pairs of pipeline neighbours" if self.axis == "pp" else f"{self.axis} groups"
        boundary = {"spine": "the spine", "unit": "racks", "rack": "NVLink domains"}[self.tier]
        return f"{self.count} of {self.total} {what} {'crosses' if self.count == 1 else 'cross'} {boundary}"


def crossings(layout: Layout, nodes: Sequence[NodeShape], sizes: Sequence[int]) -> Iterator[Crossing]:
    """Yield what is torn: groups that leave a set of leaf switches, or an NVLink domain that spans nodes."""
    counts: Counter[tuple[str, Tier]] = Counter()
    in_domains = any(node.domain != node.name for node in nodes)
    for contact in contacts_of(layout, sizes):
        counts[contact.axis, tier_of([nodes[position] for position in contact.positions])] += contact.groups
    totals = {axis: sum(1 for _ in _connected(layout, axis)) for axis in {axis for axis, _ in counts}}
    for (axis, tier), count in counts.items():
        if tier == "spine" or (in_domains and tier in ("rack", "unit")):
            yield Crossing(axis, tier, count, totals[axis])


def speeds_of(measured: Mapping[Tier, float]) -> LinkSpeeds:
    """Return the nominal speeds with those that were measured, in GB/s, in their place.

    Tiers between nodes that were not measured are as much slower or faster than nominal as those that were.
    """
    nominal = LinkSpeeds()
    if not measured:
        return nominal
    factor = statistics.median(speed / nominal.of(tier) for tier, speed in measured.items())
    between = {tier: nominal.of(tier) * factor for tier in _BETWEEN_NODES}
    return replace(nominal, **{**between, **measured})
