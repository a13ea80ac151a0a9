"""Sweeps: rounds in which every node is paired with another, each time with a new one.

Pairs of a sweep are either all inside a block of nodes or all across blocks (`Fabric.blocks`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup, Round

Way = Literal["inside", "across"]
Pair = tuple[str, str]


def ways(fabric: Fabric) -> tuple[Way, ...]:
    """The ways in which pairs can be made at all."""
    found: list[Way] = []
    if any(len(block) > 1 for block in fabric.blocks):
        found.append("inside")
    if len(fabric.blocks) > 1:
        found.append("across")
    return tuple(found)


@functools.lru_cache(maxsize=256)
def sweep(fabric: Fabric, way: Way, number: int) -> Round:
    """The pairs of sweep ``number``, once on each rail that both of a pair have."""
    told = {"inside": "each node with one of its unit", "across": "each node with one of another unit"}
    groups = tuple(group for pair in pairs(fabric, way, number) for group in rail_groups(fabric, pair))
    return Round("rail", groups, f"rail by rail, {told[way]}")


def pairs(fabric: Fabric, way: Way, number: int) -> Iterator[Pair]:
    """Disjoint pairs of nodes; the next number pairs every node with another one, until all were met."""
    if way == "inside":
        for block in fabric.blocks:
            yield from meet(block, number)
        return
    for seat, row in enumerate(_rows(fabric.blocks, number)):
        yield from meet(row, number + seat)


def _rows(groups: Sequence[Sequence[str]], number: int) -> Iterator[list[str]]:
    """One node of each block to a row. Each sweep shifts the blocks against one another, so that two meet anew."""
    for seat in range(max(map(len, groups), default=0)):
        yield [group[(seat + number * place) % len(group)] for place, group in enumerate(groups) if seat < len(group)]


def meet(names: Sequence[str], number: int) -> Iterator[Pair]:
    """Round ``number`` of the circle method, in which everybody meets everybody once; of an odd number one rests."""
    ring: list[str | None] = [*names[1:], *([] if len(names) % 2 == 0 else [None])]
    if not ring:
        return
    turn = number % len(ring)
    circle = [names[0], *ring[turn:], *ring[:turn]]
    for one, other in zip(circle[: len(circle) // 2], reversed(circle), strict=False):
        if one is not None and other is not None:
            yield one, other


def rail_groups(fabric: Fabric, pair: Pair, rails: Collection[int] | None = None) -> Iterator[RankGroup]:
    """The pair's group on each rail that both have a NIC on; ``rails`` limits them."""
    first, second = (fabric.nodes[name] for name in pair)
    theirs = {nic.rail for nic in second.nics}
    yield from (
        RankGroup(pair, nic.rail) for nic in first.nics if nic.rail in theirs and (rails is None or nic.rail in rails)
    )
