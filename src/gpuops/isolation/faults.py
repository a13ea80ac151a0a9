"""Faults: what a simulated fabric may have wrong with it, part by part.

What a fault does, and what passes it:

- a node (``gpu017``): all that it does, within it and over each of its NICs;
- a GPU's NVLink (``gpu017:gpu3``): what runs over NVLink: all GPUs of the node, pairs of GPUs, full nodes together. A
  rail's group has one GPU a node and reaches its NIC over PCIe: it does not pass;
- an HCA (``gpu017:mlx5_3``): each transfer of that NIC;
- a leaf (``leaf:L3``): each transfer of its ports, whether it stays on the leaf or leaves it;
- a rail of a unit (``unit:U2/rail3``), which is what joins that rail's leaf to the spine: each transfer on that rail
  that leaves the unit. It is not the leaf, even where the leaf carries nothing else: transfers on the leaf are fine.

A part that is x % slow lets a transfer have (100 - x) % of what it would have there. A transfer is as fast as the
worst part that it passes, so a milder fault behind a worse one does nothing. A part that hangs lets nothing through,
and a group with such a transfer never ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpuops.errors import InputError, did_you_mean
from gpuops.isolation.fabric import Fabric

_FAULT = re.compile(r"(?P<part>.+):(?:slow=(?P<percent>[1-9][0-9]?)|hang)", re.ASCII)
_RAIL = re.compile(r"unit:(?P<unit>U[0-9]+)/rail(?P<rail>[0-9]+)", re.ASCII)


@dataclass(frozen=True)
class FabricFault:
    """A part that is ``percent`` slow (1 to 99), or that hangs where ``percent`` is None."""

    part: str
    percent: int | None

    @property
    def kind(self) -> Literal["slow", "hang"]:
        """What it is called when it is found."""
        return "hang" if self.percent is None else "slow"

    @property
    def left(self) -> float:
        """The share of bandwidth that it leaves; 0 where it hangs."""
        return 0.0 if self.percent is None else 1 - self.percent / 100

    def __str__(self) -> str:
        return f"{self.part}:{'hang' if self.percent is None else f'slow={self.percent}'}"


@dataclass(frozen=True)
class PartLocation:
    """What a part stands for: the node, GPU, rail, leaf or unit in its name, the others None."""

    node: str | None = None
    gpu: int | None = None
    rail: int | None = None
    leaf: str | None = None
    unit: str | None = None


def parse_fault(text: str, fabric: Fabric) -> FabricFault:
    """A fault as it is typed: ``gpu017:mlx5_3:slow=30`` or ``leaf:L3:hang``; `InputError` says what is wrong."""
    match = _FAULT.fullmatch(text)
    if match is None:
        raise InputError(f'"{text}" is no fault: write PART:slow=PERCENT or PART:hang, such as gpu017:mlx5_3:slow=30')
    resolve(match["part"], fabric)
    return FabricFault(match["part"], int(match["percent"]) if match["percent"] else None)


def resolve(part: str, fabric: Fabric) -> PartLocation:
    """What ``part`` names in ``fabric``; `InputError` where there is no such part."""
    kind, _, name = part.partition(":")
    if kind == "leaf":
        known = fabric_leaves(fabric)
        if name in known:
            return PartLocation(leaf=name)
        raise InputError(f"there is no leaf {name}{did_you_mean(name, known)}; this fabric has {len(known)}")
    if kind == "unit":
        return _unit_rail(part, fabric)
    node = fabric.nodes.get(kind)
    if node is None:
        raise InputError(f"there is no node {kind}{did_you_mean(kind, fabric.nodes)}; there are {len(fabric.nodes)}")
    if not name:
        return PartLocation(node=kind)
    gpus = {f"gpu{index}": PartLocation(node=kind, gpu=index) for index in node.gpus}
    inside = gpus | {nic.name: PartLocation(node=kind, rail=nic.rail) for nic in node.nics}
    if name not in inside:
        raise InputError(f"{kind} has no {name}{did_you_mean(name, inside)}; it has {', '.join(inside)}")
    return inside[name]


def _unit_rail(part: str, fabric: Fabric) -> PartLocation:
    match = _RAIL.fullmatch(part)
    if match is None or match["unit"] not in fabric.units or int(match["rail"]) not in fabric.rails:
        raise InputError(
            f"there is no {part}: a rail of a unit is written unit:U0/rail0, and this fabric has "
            f"{len(fabric.units)} units and {len(fabric.rails)} rails"
        )
    if len(fabric.units) == 1:
        raise InputError(f"{part} joins nothing: all nodes are in one unit")
    return PartLocation(unit=match["unit"], rail=int(match["rail"]))


def fabric_leaves(fabric: Fabric) -> tuple[str, ...]:
    """Every leaf that a port is cabled to, in the order of the inventory."""
    return tuple(dict.fromkeys(nic.leaf for node in fabric.nodes.values() for nic in node.nics if nic.leaf))


def hiders(fault: FabricFault, faults: Iterable[FabricFault], fabric: Fabric) -> list[FabricFault]:
    """The other faults behind which ``fault`` does nothing: each transfer over its part also passes a part as bad."""
    here = resolve(fault.part, fabric)
    worse = [other for other in faults if other != fault and other.left <= fault.left]
    return [other for other in worse if _passes(here, resolve(other.part, fabric), fabric)]


def _passes(inner: PartLocation, outer: PartLocation, fabric: Fabric) -> bool:
    """Whether each transfer over ``inner`` passes ``outer`` too."""
    if inner.node is not None:
        only_two = inner.gpu is not None and outer.gpu is not None and len(fabric.nodes[inner.node].gpus) == 2
        on_leaf = inner.rail is not None and outer.leaf is not None and outer.leaf == _leaf(fabric, inner.node, inner)
        return on_leaf or (outer.node == inner.node and (outer == PartLocation(node=inner.node) or only_two))
    if inner.unit is not None:
        ends = list(fabric.units) if len(fabric.units) == 2 else [inner.unit]  # of two units all transfers pass both
        leaves = [_leaf(fabric, fabric.units[unit][0], inner) for unit in ends]
        return (outer.unit in ends and outer.rail == inner.rail) or (outer.leaf is not None and outer.leaf in leaves)
    return False


def _leaf(fabric: Fabric, node: str, passage: PartLocation) -> str | None:
    """The leaf that the node's port on the passage's rail is cabled to."""
    nic = fabric.nodes[node].nic(-1 if passage.rail is None else passage.rail)
    return nic.leaf if nic else None
