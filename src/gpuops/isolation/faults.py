"""Faults of a simulated fabric, part by part.

A fault affects whatever its part carries:

- a node (``gpu017``): all that it does, within it and over each of its NICs;
- a GPU's NVLink (``gpu017:gpu3``): what runs over NVLink: all GPUs of the node, pairs of GPUs, full nodes together. A
  rail's group has one GPU per node, which reaches its NIC over PCIe, so it does not cross NVLink;
- an HCA (``gpu017:mlx5_3``): each transfer of that NIC;
- a leaf (``leaf:L3``): each transfer of its ports, whether it stays on the leaf or leaves it;
- a rail of a unit (``unit:U2/rail3``), which is what joins that rail's leaf to the spine: each transfer on that rail
  that leaves the unit. It is not the leaf, even if the leaf carries nothing else: transfers on the leaf are fine.

A part that is x % slow reduces a transfer to (100 - x) % of the bandwidth that it would have there. A transfer is as
fast as the worst part that it crosses, so a milder fault behind a worse one has no effect. A part that hangs lets
nothing through, and a group with such a transfer never ends.
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
    """A part that is ``percent`` slow (1 to 99), or that hangs if ``percent`` is None."""

    part: str
    percent: int | None

    @property
    def kind(self) -> Literal["slow", "hang"]:
        """The kind under which it is blamed."""
        return "hang" if self.percent is None else "slow"

    @property
    def remaining_ratio(self) -> float:
        """The fraction of bandwidth that remains; 0 if it hangs."""
        return 0.0 if self.percent is None else 1 - self.percent / 100

    def __str__(self) -> str:
        return f"{self.part}:{'hang' if self.percent is None else f'slow={self.percent}'}"


@dataclass(frozen=True)
class PartLocation:
    """What a part stands for: the node, GPU, rail, leaf or unit in its name; the other fields are None."""

    node: str | None = None
    gpu: int | None = None
    rail: int | None = None
    leaf: str | None = None
    unit: str | None = None


def parse_fault(text: str, fabric: Fabric) -> FabricFault:
    """Parse a fault such as ``gpu017:mlx5_3:slow=30`` or ``leaf:L3:hang``; raise `InputError` if it is not one."""
    match = _FAULT.fullmatch(text)
    if match is None:
        raise InputError(
            f'"{text}" is not a fault; write PART:slow=PERCENT or PART:hang, such as gpu017:mlx5_3:slow=30'
        )
    resolve(match["part"], fabric)
    return FabricFault(match["part"], int(match["percent"]) if match["percent"] else None)


def resolve(part: str, fabric: Fabric) -> PartLocation:
    """Return the location that ``part`` names in ``fabric``; raise `InputError` if there is no such part."""
    kind, _, name = part.partition(":")
    if kind == "leaf":
        leaves = fabric_leaves(fabric)
        if name in leaves:
            return PartLocation(leaf=name)
        raise InputError(f'no leaf named "{name}"{did_you_mean(name, leaves)}; this fabric has {len(leaves)}')
    if kind == "unit":
        return _unit_rail(part, fabric)
    node = fabric.nodes.get(kind)
    if node is None:
        raise InputError(
            f'no node named "{kind}"{did_you_mean(kind, fabric.nodes)}; this fabric has {len(fabric.nodes)}'
        )
    if not name:
        return PartLocation(node=kind)
    gpu_locations = {f"gpu{index}": PartLocation(node=kind, gpu=index) for index in node.gpus}
    location_by_name = gpu_locations | {nic.name: PartLocation(node=kind, rail=nic.rail) for nic in node.nics}
    if name not in location_by_name:
        raise InputError(
            f'{kind} has no part named "{name}"{did_you_mean(name, location_by_name)}; it has '
            + ", ".join(location_by_name)
        )
    return location_by_name[name]


def _unit_rail(part: str, fabric: Fabric) -> PartLocation:
    match = _RAIL.fullmatch(part)
    if match is None or match["unit"] not in fabric.units or int(match["rail"]) not in fabric.rails:
        raise InputError(
            f'no part named "{part}"; a rail of a unit is written unit:U0/rail0, and this fabric has '
            f"{len(fabric.units)} units and {len(fabric.rails)} rails"
        )
    if len(fabric.units) == 1:
        raise InputError(f"{part} carries no traffic, because all nodes are in one unit; name another part")
    return PartLocation(unit=match["unit"], rail=int(match["rail"]))


def fabric_leaves(fabric: Fabric) -> tuple[str, ...]:
    """Return every leaf that a port is cabled to, in inventory order."""
    return tuple(dict.fromkeys(nic.leaf for node in fabric.nodes.values() for nic in node.nics if nic.leaf))


def masking_faults(fault: FabricFault, faults: Iterable[FabricFault], fabric: Fabric) -> list[FabricFault]:
    """Return the faults that hide ``fault``: its transfers also cross one of these parts, as bad or worse."""
    location = resolve(fault.part, fabric)
    at_least_as_bad = [other for other in faults if other != fault and other.remaining_ratio <= fault.remaining_ratio]
    return [other for other in at_least_as_bad if _always_crosses(location, resolve(other.part, fabric), fabric)]


def _always_crosses(inner: PartLocation, outer: PartLocation, fabric: Fabric) -> bool:
    """Return True if each transfer over ``inner`` crosses ``outer`` too."""
    if inner.node is not None:
        only_two = inner.gpu is not None and outer.gpu is not None and len(fabric.nodes[inner.node].gpus) == 2
        on_leaf = inner.rail is not None and outer.leaf is not None and outer.leaf == _leaf(fabric, inner.node, inner)
        return on_leaf or (outer.node == inner.node and (outer == PartLocation(node=inner.node) or only_two))
    if inner.unit is not None:
        ends = list(fabric.units) if len(fabric.units) == 2 else [inner.unit]  # of two units all transfers cross both
        leaves = [_leaf(fabric, fabric.units[unit][0], inner) for unit in ends]
        return (outer.unit in ends and outer.rail == inner.rail) or (outer.leaf is not None and outer.leaf in leaves)
    return False


def _leaf(fabric: Fabric, node: str, location: PartLocation) -> str | None:
    """Return the leaf that the node's port on the location's rail is cabled to."""
    nic = fabric.nodes[node].nic(-1 if location.rail is None else location.rail)
    return nic.leaf if nic else None
