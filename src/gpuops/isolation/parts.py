"""The parts of a fabric that a group crosses, which are the parts that its result may blame."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Literal, NamedTuple

from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import GroupResult, RankGroup

PartKind = Literal["leaf", "uplink", "node", "nic", "together"]
KINDS: tuple[PartKind, ...] = ("leaf", "uplink", "node", "nic", "together")
"""In the order in which they are blamed: a part that many share comes before the parts behind it."""


class Part(NamedTuple):
    """A part of the fabric: ``owner`` is a leaf, a unit (uplink) or a node, ``number`` the rail of an uplink or NIC.

    ``together`` stands for a node's NVLink and NICs at the same time, which only groups of full nodes test.
    """

    kind: PartKind
    owner: str
    number: int = -1

    def name(self, fabric: Fabric) -> str:
        """Return its name as in `gpuops.isolation.fabric`."""
        if self.kind == "leaf":
            return f"leaf:{self.owner}"
        if self.kind == "uplink":
            return f"unit:{self.owner}/rail{self.number}"
        return fabric.part(self.owner, self.number) if self.kind == "nic" else self.owner

    def crossed_by(self, figure: GroupResult, fabric: Fabric) -> bool:
        """Return True if ``figure`` depends on this part; if it names missing members, only on their nodes."""
        if figure.absent:
            return self.kind == "node" and self.owner in figure.absent
        group = figure.group
        if self.kind == "leaf":
            rails = fabric.rails if group.rail is None else (group.rail,)
            ports = ((node, rail) for node in group.nodes for rail in rails)
            return len(group.nodes) > 1 and any(fabric.leaf_of.get(port) == self.owner for port in ports)
        if self.kind == "uplink":
            units = {fabric.unit_of.get(node) for node in group.nodes}
            return group.rail in {None, self.number} and self.owner in units and len(units) > 1
        return self.owner in group.nodes and (self.kind == "node" or self._is_between(group))

    def _is_between(self, group: RankGroup) -> bool:
        """Return True if the group uses the node's NIC, or the node together with others, at all."""
        rails = {None} if self.kind == "together" else {None, self.number}
        return len(group.nodes) > 1 and group.rail in rails


@functools.lru_cache(maxsize=1 << 16)
def parts_of(group: RankGroup, fabric: Fabric) -> frozenset[Part]:
    """Return every part that ``group`` crosses: its nodes, and on each rail NICs, leaves and, across units, uplinks."""
    return frozenset(_parts(group, fabric))


def _parts(group: RankGroup, fabric: Fabric) -> Iterator[Part]:
    yield from (Part("node", node) for node in group.nodes)
    if len(group.nodes) == 1:
        return
    if group.rail is None:
        yield from (Part("together", node) for node in group.nodes)
    units = [fabric.unit_of.get(node) for node in group.nodes]
    for rail in fabric.rails if group.rail is None else (group.rail,):
        for node, unit in zip(group.nodes, units, strict=True):
            yield Part("nic", node, rail)
            leaf = fabric.leaf_of.get((node, rail))
            if leaf is not None:
                yield Part("leaf", leaf)
            if unit is not None and len(set(units)) > 1:
                yield Part("uplink", unit, rail)
