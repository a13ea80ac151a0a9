"""The order of nodes in which a layout's traffic takes the least time: best fit first, then exchanges of two nodes."""

from __future__ import annotations

import bisect
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence

from gpuops.layout import AXES, Layout
from gpuops.placement.shape import NodeShape
from gpuops.placement.traffic import Contact, LinkSpeeds, contacts_of, cost

LEVELS: tuple[Callable[[NodeShape], object], ...] = (
    lambda node: node.leaves,
    lambda node: node.rack or "",
    lambda node: node.domain,
)
"""Where nodes are near each other, from far to near."""
_MOST_LOOKS = 100_000
"""Positions that exchanges from one candidate may look at: less than a second. Beyond that, best fit alone decides."""
_MOST_STARTS = 4
"""Candidates that exchanges start from, the cheapest first."""
_SMALL_GAIN = 1 - 1e-9


def cheapest(
    layout: Layout, sizes: Sequence[int], gpus: Sequence[int], nodes: Sequence[NodeShape], speeds: LinkSpeeds
) -> list[NodeShape]:
    """Return a node for every position, in the order of ranks that costs the least.

    ``sizes`` are the ranks of each position, and ``gpus`` the GPUs of the nodes that may be there. Candidates are all
    orders of the axes, in pieces that are whole in a unit, a rack and a domain; exchanging nodes improves the best.
    """
    contacts = contacts_of(layout, sizes)
    ordered = sorted(nodes, key=lambda node: natural_key(node.name))
    candidates = [
        _filled(order, pieces, gpus, ordered, nearest)
        for order, pieces in _orders(layout, sizes)
        for nearest in range(len(LEVELS))
    ]
    candidates.sort(key=lambda candidate: cost(contacts, candidate, speeds))
    improved = [_exchanged(candidate, ordered, contacts, speeds) for candidate in candidates[:_MOST_STARTS]]
    return min(improved, key=lambda candidate: cost(contacts, candidate, speeds))


def natural_key(name: str) -> list[tuple[str, int]]:
    """Return a key that sorts node2 before node10."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"([^0-9]*)([0-9]*)", name)]


def _orders(layout: Layout, sizes: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield orders of the positions, neighbours along one axis after the other, each with its sizes of pieces.

    Experts divide the replicas: the positions are also ordered by expert group and by what is left of the replicas.
    """
    firsts = list(itertools.accumulate(sizes, initial=0))[:-1]
    spans = {axis: _span(layout, axis, firsts) for axis in AXES}
    spans["groups of ep"] = max(1, len(sizes) // (spans["tp"] * spans["ep"] * spans["pp"]))
    places = [layout.coordinates(rank) | _expert_group(layout, rank) for rank in firsts]
    for names in {("tp", "cp", "dp", "pp"), ("tp", "ep", "groups of ep", "pp") if layout.ep > 1 else ()} - {()}:
        for axes in itertools.permutations(name for name in names if spans[name] > 1):
            order = sorted(range(len(sizes)), key=lambda at, axes=axes: [places[at][axis] for axis in reversed(axes)])  # type: ignore[misc]
            pieces = {1, spans["ep"], *itertools.accumulate((spans[axis] for axis in axes), operator.mul)}
            yield order, sorted(pieces, reverse=True)


def _expert_group(layout: Layout, rank: int) -> dict[str, int]:
    """Return which expert group of its stage a rank is in."""
    return {"groups of ep": rank // layout.strides(expert=True)["dp"] % (layout.dp * layout.cp // layout.ep)}


def _span(layout: Layout, axis: str, firsts: Sequence[int]) -> int:
    """Return how many positions the first group along ``axis`` is on; ``firsts`` are the first ranks of each."""
    return len({bisect.bisect(firsts, rank) for rank in layout.groups(axis)[0]})


def _filled(
    order: Sequence[int], pieces: Sequence[int], gpus: Sequence[int], nodes: Sequence[NodeShape], level: int
) -> list[NodeShape]:
    """Return a node for every position, taken in ``order`` and filled in ``pieces``, nodes of each size for theirs.

    A small job goes into the unit, the rack or the domain that it fits best: ``level`` is where that begins.
    """
    found: dict[int, NodeShape] = {}
    for size in dict.fromkeys(gpus):
        positions = [at for at in order if gpus[at] == size]
        fitting = [node for node in nodes if len(node.gpus) == size]
        found |= zip(positions, _chosen(len(positions), pieces, fitting, level), strict=True)
    return [found[at] for at in range(len(gpus))]


def _chosen(count: int, pieces: Sequence[int], nodes: Sequence[NodeShape], level: int) -> list[NodeShape]:
    """Return ``count`` of ``nodes``, from as few units as possible, of each from as few racks, and so on."""
    if level == len(LEVELS):
        return list(nodes[:count])
    bins: dict[object, list[NodeShape]] = {}
    for node in nodes:
        bins.setdefault(LEVELS[level](node), []).append(node)
    shares = takes(count, pieces, [len(members) for members in bins.values()])
    parts = [
        _chosen(take, pieces, members, level + 1) for members, take in zip(bins.values(), shares, strict=True) if take
    ]
    return list(itertools.chain(*parts))


def takes(count: int, pieces: Sequence[int], rooms: Sequence[int]) -> list[int]:
    """Return how many positions or ranks each bin takes: whole pieces as long as they last, in as few bins as possible.

    The last nodes go where they fit best, so that larger bins stay whole for other jobs.
    """
    if max(rooms) == 1:  # a thousand nodes, each by itself
        return [int(at < count) for at in range(len(rooms))]
    free, left = list(rooms), count
    for piece in pieces:
        while left:
            fits = [at for at, room in enumerate(free) if room >= left]
            at = min(fits, key=free.__getitem__) if fits else max(range(len(free)), key=lambda at: free[at] // piece)
            take = left if fits else min(free[at], left) // piece * piece
            if not take:
                break
            free[at] -= take
            left -= take
    return [room - rest for room, rest in zip(rooms, free, strict=True)]


def _exchanged(
    used: list[NodeShape], nodes: Sequence[NodeShape], contacts: Sequence[Contact], speeds: LinkSpeeds
) -> list[NodeShape]:
    """Return ``used`` after every exchange of two positions, or of one with a spare, that makes it cheaper."""
    touching = _touching(contacts, len(used))
    names = {node.name for node in used}
    line = [*used, *(node for node in nodes if node.name not in names)]
    places = [place_of(node) for node in line]
    looks, improved = 0, len(set(places)) > 1
    while improved:
        improved = False
        for a, b in itertools.product(range(len(used)), range(len(line))):
            if b <= a or places[a] == places[b] or len(line[a].gpus) != len(line[b].gpus):
                continue
            near = touching[a] if b >= len(used) else touching[a] + touching[b]
            looks += sum(len(contact.positions) for contact in near)
            if looks > _MOST_LOOKS:
                return line[: len(used)]
            if _try_exchange(line, a, b, near, speeds):
                improved, places[a], places[b] = True, places[b], places[a]
    return line[: len(used)]


def _try_exchange(line: list[NodeShape], a: int, b: int, near: Sequence[Contact], speeds: LinkSpeeds) -> bool:
    """Exchange two nodes; unless that makes ``near`` cheaper, change them back and return False."""
    before = cost(near, line, speeds)
    line[a], line[b] = line[b], line[a]
    if cost(near, line, speeds) < before * _SMALL_GAIN:
        return True
    line[a], line[b] = line[b], line[a]
    return False


def _touching(contacts: Sequence[Contact], positions: int) -> list[list[Contact]]:
    """Return the contacts of each position."""
    touching: list[list[Contact]] = [[] for _ in range(positions)]
    for contact in contacts:
        for position in contact.positions:
            touching[position].append(contact)
    return touching


def place_of(node: NodeShape) -> tuple[object, ...]:
    """Return where a node is: exchanging two nodes of the same place changes nothing."""
    return (node.leaves, node.rack, "" if node.domain == node.name else node.domain)
