"""How many ranks each node holds where nodes are unequal: candidates of each unit, rack and domain, the best improved.

Every node but the last of a piece holds as many ranks as it has GPUs. A piece is a whole number of groups, such as a
stage of the pipeline: a node that ends with a piece splits no group. No candidate leaves as many GPUs idle as its
largest node has.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuops.layout import Layout
from gpuops.placement.packing import LEVELS, cheapest, natural_key, place_of, takes
from gpuops.placement.shape import NodeShape
from gpuops.placement.traffic import LinkSpeeds, contacts_of, cost, tier_of

_MOST_RANKS = 100_000
"""Ranks of all candidates together whose traffic is computed: about a second."""
_ORDERING = 8
"""How many candidates cost as much time as the cheapest order of one."""
_MOST_SCOPES = 6
"""Units, racks or domains that are tried, the smallest first; those with the same nodes count once."""
_MOST_STARTS = 3
"""Candidates that exchanges start from, the cheapest first."""
_NEARLY = 1.03
"""How much more the nodes that were chosen first may cost: those of one size, which every launcher starts, if any."""


@dataclass(frozen=True)
class _Candidate:
    """Nodes in rank order, each with the GPUs that it uses, and which of all nodes could be there instead."""

    used: tuple[NodeShape, ...]
    scope: tuple[NodeShape, ...]
    piece: int
    score: tuple[bool, float]


class Fillings:
    """The search for nodes of a layout among ``nodes``; ``block`` neighbouring ranks are never on two nodes."""

    def __init__(self, layout: Layout, nodes: Sequence[NodeShape], block: int, speeds: LinkSpeeds) -> None:
        self._layout, self._block, self._speeds = layout, block, speeds
        self._nodes = tuple(sorted((node for node in nodes if node.gpus), key=lambda node: natural_key(node.name)))
        self._full = {node.name: node for node in self._nodes}
        # a job is torn if it leaves the NVLink domains that span nodes, or else its leaf switches
        self._far = ("rack", "unit", "spine") if any(node.domain != node.name for node in nodes) else ("spine",)
        self._pieces = [piece for piece in _pieces(layout) if piece % block == 0]
        self._left = _MOST_RANKS  # how many may still be looked at
        self._known: dict[object, _Candidate] = {}

    def better(self, used: Sequence[NodeShape]) -> list[NodeShape]:
        """Return ``used``, or nodes on which the layout is less torn, or as torn and clearly cheaper."""
        first = self._scored(used, self._nodes, self._layout.ranks)
        found = sorted([first, *self._candidates()], key=lambda candidate: candidate.score)
        improved = [self._exchanged(self._ordered(start)) for start in found[:_MOST_STARTS]]
        best = min([first, *improved], key=lambda candidate: candidate.score)
        is_kept = (first.score[0], first.score[1] / _NEARLY) <= best.score
        return list(first.used if is_kept else best.used)

    def _candidates(self) -> Iterator[_Candidate]:
        for scope in self._scopes():
            for nodes in _of_sizes(scope):
                for piece in self._pieces:
                    if self._left < _MOST_RANKS // 2:
                        return
                    self._left -= len(nodes)
                    used = _filled(self._layout.ranks, self._pieces, piece, nodes)
                    if self._fits(used):
                        yield self._scored(used, nodes, piece)

    def _scopes(self) -> Iterator[tuple[NodeShape, ...]]:
        """Yield the domains, racks and units that hold the job whole, and all nodes."""
        for level in (*reversed(LEVELS), _anywhere):
            bins: dict[object, list[NodeShape]] = {}
            for node in self._nodes:
                bins.setdefault(level(node), []).append(node)
            fitting = [tuple(each) for each in bins.values() if _gpus(each) >= self._layout.ranks]
            distinct = {_likeness(each): each for each in sorted(fitting, key=_gpus, reverse=True)}
            yield from list(reversed(distinct.values()))[:_MOST_SCOPES]

    def _fits(self, used: Sequence[NodeShape]) -> bool:
        """Return True if ``used`` hold all ranks, and leave fewer GPUs idle than the largest of them has."""
        full = [len(self._full[node.name].gpus) for node in used]
        return _gpus(used) == self._layout.ranks and sum(full) - self._layout.ranks < max(full)

    def _scored(self, used: Sequence[NodeShape], scope: Sequence[NodeShape], piece: int) -> _Candidate:
        """Return the candidate with its score; that of nodes in the same places is the same."""
        sizes = [len(node.gpus) for node in used]
        key = tuple((place_of(node), size) for node, size in zip(used, sizes, strict=True))
        if key not in self._known:
            self._left -= self._layout.ranks
            score = (tier_of(used) in self._far, cost(contacts_of(self._layout, sizes), used, self._speeds))
            self._known[key] = _Candidate(tuple(used), tuple(scope), piece, score)
        return self._known[key]

    def _ordered(self, start: _Candidate) -> _Candidate:
        """Return the candidate with its nodes in the cheapest order of the axes, if that is better."""
        if self._left <= 0:
            return start
        self._left -= _ORDERING * self._layout.ranks
        sizes = [len(node.gpus) for node in start.used]
        full = [len(self._full[node.name].gpus) for node in start.used]
        fitting = [node for node in start.scope if len(node.gpus) in full]
        chosen = cheapest(self._layout, sizes, full, fitting, self._speeds)
        used = [replace(node, gpus=node.gpus[:size]) for node, size in zip(chosen, sizes, strict=True)]
        return min(start, self._scored(used, start.scope, start.piece), key=lambda candidate: candidate.score)

    def _exchanged(self, best: _Candidate) -> _Candidate:
        """Return the candidate after every exchange of two nodes, also of unequal ones, that makes it better."""
        improved = True
        while improved and self._left > 0:
            improved = False
            for other in self._neighbours(best):
                if other.score < best.score:
                    best, improved = other, True
                    break
        return best

    def _neighbours(self, start: _Candidate) -> Iterator[_Candidate]:
        names = {node.name for node in start.used}
        spares = {(place_of(n), len(n.gpus)): n for n in reversed(self._nodes) if n.name not in names}
        line = [*(self._full[node.name] for node in start.used), *spares.values()]
        for a, b in itertools.product(range(len(start.used)), range(len(line))):
            if b <= a or (place_of(line[a]), len(line[a].gpus)) == (place_of(line[b]), len(line[b].gpus)):
                continue
            other = list(line)
            other[a], other[b] = line[b], line[a]
            for piece in self._pieces:
                if self._left <= 0:
                    return
                self._left -= len(start.used)
                used = _cut(other, self._layout.ranks, piece)
                if self._fits(used):
                    yield self._scored(used, self._nodes, piece)


def _anywhere(_node: NodeShape) -> object:
    return ""


def _pieces(layout: Layout) -> list[int]:
    """Return the numbers of neighbouring ranks that are whole groups of some axes, the largest first."""
    dense, expert = layout.strides(), layout.strides(expert=True)
    sizes = {dense[axis] * getattr(layout, axis) for axis in dense if axis != "ep"}
    return sorted({*sizes, expert["ep"] * layout.ep, layout.ranks}, reverse=True)


def _gpus(nodes: Sequence[NodeShape]) -> int:
    return sum(len(node.gpus) for node in nodes)


def _likeness(nodes: Sequence[NodeShape]) -> object:
    """Return what two scopes share that hold the same jobs equally well: the sizes of nodes in each place."""
    places: dict[object, list[int]] = {}
    for node in nodes:
        places.setdefault(place_of(node), []).append(len(node.gpus))
    return tuple(sorted(tuple(sorted(sizes)) for sizes in places.values()))


def _of_sizes(scope: Sequence[NodeShape]) -> Iterator[tuple[NodeShape, ...]]:
    """Yield the nodes of the scope of one size, of all sizes, and without the larger ones."""
    sizes = sorted(Counter(len(node.gpus) for node in scope), reverse=True)
    for size in sizes:
        yield tuple(node for node in scope if len(node.gpus) == size)
    for size in sizes:
        yield tuple(node for node in scope if len(node.gpus) <= size)


def _filled(
    ranks: int, pieces: Sequence[int], piece: int, nodes: Sequence[NodeShape], level: int = 0
) -> list[NodeShape]:
    """Return nodes that hold ``ranks``, from as few units as possible, of each from as few racks, and so on."""
    if level == len(LEVELS):
        return _packed(ranks, piece, nodes)
    key: Callable[[NodeShape], object] = LEVELS[level]
    bins: dict[object, list[NodeShape]] = {}
    for node in nodes:
        bins.setdefault("" if key(node) == node.name else key(node), []).append(node)
    smaller = [each for each in pieces if each <= piece]
    shares = zip(takes(ranks, [*smaller, 1], [_gpus(each) for each in bins.values()]), bins.values(), strict=True)
    whole_first = sorted(shares, key=lambda share: (share[0] % piece != 0, -share[0]))
    parts = (_filled(take, pieces, piece, members, level + 1) for take, members in whole_first if take)
    return list(itertools.chain(*parts))


def _packed(ranks: int, piece: int, nodes: Sequence[NodeShape]) -> list[NodeShape]:
    """Return nodes of one place that hold ``ranks``: the largest that leave no GPU idle, then those that fit best."""
    nodes_by_size: dict[int, list[NodeShape]] = {}
    for node in reversed(nodes):
        nodes_by_size.setdefault(len(node.gpus), []).append(node)
    used: list[NodeShape] = []
    done = 0
    while done < ranks and nodes_by_size:
        held = {size: _held(size, done, ranks, piece) for size in nodes_by_size}
        size = min(held, key=lambda size: (size - held[size], -held[size]))
        node = nodes_by_size[size].pop()
        used.append(replace(node, gpus=node.gpus[: held[size]]))
        done += held[size]
        nodes_by_size = {size: members for size, members in nodes_by_size.items() if members}
    return used


def _held(gpus: int, done: int, ranks: int, piece: int) -> int:
    """Return how many ranks a node of ``gpus`` holds after ``done``: it ends with a piece if it reaches its end."""
    rest = piece - done % piece
    return min(ranks - done, gpus if gpus < rest else rest + (gpus - rest) // piece * piece)


def _cut(line: Sequence[NodeShape], ranks: int, piece: int) -> list[NodeShape]:
    """Return the first nodes of ``line`` with the GPUs that ``ranks`` need there."""
    used: list[NodeShape] = []
    done = 0
    for node in line:
        if done == ranks:
            break
        held = _held(len(node.gpus), done, ranks, piece)
        used.append(replace(node, gpus=node.gpus[:held]))
        done += held
    return used
