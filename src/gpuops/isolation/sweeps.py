"""Rounds in which every node is paired with another one, with a new partner each time.

Pairs of a sweep are either all inside a block of nodes or all across blocks (`Fabric.blocks`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup, Round

PairingScheme = Literal["inside", "across"]
Pair = tuple[str, str]


def pairing_schemes(fabric: Fabric) -> tuple[PairingScheme, ...]:
    """Return the schemes by which the fabric's nodes can be paired."""
    schemes: list[PairingScheme] = []
    if any(len(block) > 1 for block in fabric.blocks):
        schemes.append("inside")
    if len(fabric.blocks) > 1:
        schemes.append("across")
    return tuple(schemes)


@functools.lru_cache(maxsize=256)
def sweep(fabric: Fabric, scheme: PairingScheme, number: int) -> Round:
    """Return the pairs of sweep ``number``, once on each rail that both nodes of a pair have."""
    description = {"inside": "each node with one of its unit", "across": "each node with one of another unit"}
    groups = tuple(group for pair in pairs(fabric, scheme, number) for group in rail_groups(fabric, pair))
    return Round("rail", groups, f"rail by rail, {description[scheme]}")


def pairs(fabric: Fabric, scheme: PairingScheme, number: int) -> Iterator[Pair]:
    """Yield disjoint pairs of nodes; the next number pairs every node with another one, until every pair occurred."""
    if scheme == "inside":
        for block in fabric.blocks:
            yield from round_robin_pairs(block, number)
        return
    for index, row in enumerate(_rows(fabric.blocks, number)):
        yield from round_robin_pairs(row, number + index)


def _rows(groups: Sequence[Sequence[str]], number: int) -> Iterator[list[str]]:
    """Yield rows with one node of each block. Each sweep shifts the blocks against one another, for new pairs."""
    for index in range(max(map(len, groups), default=0)):
        yield [group[(index + number * shift) % len(group)] for shift, group in enumerate(groups) if index < len(group)]


def round_robin_pairs(names: Sequence[str], number: int) -> Iterator[Pair]:
    """Yield round ``number`` of the circle method, which pairs each two names once; with an odd number, one rests."""
    ring: list[str | None] = [*names[1:], *([] if len(names) % 2 == 0 else [None])]
    if not ring:
        return
    start = number % len(ring)
    circle = [names[0], *ring[start:], *ring[:start]]
    for first, second in zip(circle[: len(circle) // 2], reversed(circle), strict=False):
        if first is not None and second is not None:
            yield first, second


def rail_groups(fabric: Fabric, pair: Pair, rails: Collection[int] | None = None) -> Iterator[RankGroup]:
    """Yield the pair's group on each rail on which both have a NIC, limited to ``rails``."""
    first, second = (fabric.nodes[name] for name in pair)
    common = {nic.rail for nic in second.nics} if rails is None else {nic.rail for nic in second.nics} & set(rails)
    yield from (RankGroup(pair, nic.rail) for nic in first.nics if nic.rail in common)
