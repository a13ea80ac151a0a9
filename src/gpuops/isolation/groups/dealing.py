"""Groups of about 16 nodes, dealt anew in each round so that every suspect meets other nodes.

Two groups form a pool, a slow one with a healthy one if possible, and the nodes of a pool are dealt to two new groups:
half of those that could not be distinguished so far to each. Healthy pools are dealt as well, to compare with.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator, Sequence

from gpuops.isolation.fabric import Fabric
from gpuops.isolation.groups.stragglers import Stragglers, in_order
from gpuops.isolation.rounds import RankGroup

_SIZE = 16
"""Nodes of a group: a straggler shows in groups of a dozen nodes, not in small ones."""
_LEAST = 12
_TOGETHER = 1 / 4
"""How often suspects are not kept apart on purpose: of two stragglers, only the other half shows what is healthy."""
Nodes = tuple[str, ...]


def even_groups(units: Sequence[Nodes]) -> tuple[Nodes, ...]:
    """Return groups of 12 to 23 nodes: units, halves of large ones, neighbours of small ones; one if there are few."""
    names = tuple(name for unit in units for name in unit)
    if len(names) < 2 * _LEAST:
        return (names,)
    groups = [part for unit in units if len(unit) >= _LEAST for part in _slices(unit)]
    rest = tuple(name for unit in units if len(unit) < _LEAST for name in unit)
    if len(rest) < _LEAST and rest:
        rest = (*groups.pop(), *rest)
    return (*groups, *(_slices(rest) if rest else ()))


def _slices(names: Nodes) -> list[Nodes]:
    count = len(names) // _SIZE if len(names) >= 2 * _SIZE else len(names) // _LEAST
    edges = [len(names) * number // count for number in range(count + 1)]
    return [names[start:end] for start, end in itertools.pairwise(edges)]


def max_left_out(count: int) -> int:
    """Return how many of ``count`` nodes a group may lack and still be large."""
    return max(1, min(count // 4, count - _LEAST) if count > _LEAST else count // 4)


class Deal:
    """The groups of one more round; ``turn`` counts those before."""

    def __init__(self, fabric: Fabric, stragglers: Stragglers, turn: int) -> None:
        self._fabric, self._stragglers, self._turn = fabric, stragglers, turn
        self._candidates = {name for suspicion in stragglers.open for name in suspicion.near}
        self._random = random.Random(turn)  # noqa: S311 - reproducible on purpose
        self._leaders = {suspicion.node for suspicion in stragglers.open}

    def groups(self, bases: Sequence[Nodes]) -> tuple[RankGroup, ...]:
        """Return two groups for each pool of two ``bases``."""
        sure = {suspicion.node for suspicion in self._stragglers.sure}
        rest = [tuple(name for name in base if name not in sure) for base in bases]
        dealt = (half for pool in self._pools(rest) for half in self._halves(pool))
        return tuple(map(self._group, dealt))

    def _group(self, nodes: Collection[str]) -> RankGroup:
        """Return the nodes unit by unit, others at its ends each time: only these cross the spine in a ring."""
        names = in_order(self._fabric, nodes)
        units = (list(own) for _, own in itertools.groupby(names, self._fabric.block_of.__getitem__))
        turned = (own[self._turn % len(own) :] + own[: self._turn % len(own)] for own in units)
        return RankGroup(tuple(itertools.chain.from_iterable(turned)))

    def _pools(self, bases: Sequence[Nodes]) -> Iterator[Nodes]:
        """Yield pools: a suspected base with one of its unit, else a healthy one; of an odd number one rests."""
        waiting = sorted(bases, key=lambda base: -self._suspicion(base))
        if len(waiting) % 2 and len(waiting) > 1:
            others = [base for base in waiting[1:] if self._suspicion(base) == self._suspicion(waiting[-1])]
            waiting.remove(others[self._turn % len(others)])
        while len(waiting) > 1:
            base, *others = waiting
            partner = min(others, key=lambda other: (not self._is_same_unit(base, other), self._suspicion(other)))
            others.remove(partner)
            yield (*base, *partner)
            waiting = others

    def _suspicion(self, base: Nodes) -> float:
        """Return the logarithm of the e-value of the likeliest straggler among the nodes; 0 if all are healthy."""
        return max((one.log_e for one in self._stragglers.open if not set(one.near).isdisjoint(base)), default=0.0)

    def _is_same_unit(self, one: Nodes, other: Nodes) -> bool:
        return len({self._fabric.block_of[name] for name in (*one, *other)}) == 1

    def _halves(self, pool: Nodes) -> tuple[list[str], list[str]]:
        halves: tuple[list[str], list[str]] = ([], [])
        for nodes in self._alike(pool):
            balance = len(halves[0]) - len(halves[1])
            is_free = balance == 0 or self._random.random() < _TOGETHER
            first = self._random.randrange(2) if is_free else int(balance > 0)
            middle = (len(nodes) + 1) // 2
            halves[first].extend(nodes[:middle])
            halves[1 - first].extend(nodes[middle:])
        self._fill(halves, pool)
        self._share_a_unit(halves)
        return halves

    def _alike(self, pool: Nodes) -> list[list[str]]:
        """Return the suspects, those with the same history together."""
        by_history: dict[tuple[int, ...], list[str]] = {}
        for name in pool:
            if name in self._candidates:
                by_history.setdefault(self._stragglers.history(name), []).append(name)
        alike = list(by_history.values())
        self._random.shuffle(alike)
        return sorted(alike, key=len, reverse=True)

    def _fill(self, halves: tuple[list[str], list[str]], pool: Nodes) -> None:
        """Add the other nodes, those that were with a suspect most often to the other half."""
        others = [name for name in pool if name not in self._candidates]
        turn = (self._turn * len(others) // 3) % max(1, len(others))
        others = others[turn:] + others[:turn]
        pulls = [self._pull(halves, name) for name in others]
        order = sorted(range(len(others)), key=lambda index: pulls[index])
        room = (len(pool) + 1) // 2 - len(halves[0])
        halves[0].extend(others[index] for index in order[: max(0, room)])
        halves[1].extend(others[index] for index in order[max(0, room) :])

    def _shared(self, name: str, node: str) -> int:
        """Return how many groups contained both nodes."""
        return len(set(self._stragglers.history(name)) & set(self._stragglers.history(node)))

    def _share_a_unit(self, halves: tuple[list[str], list[str]]) -> None:
        """Exchange two nodes if the halves share no unit: in all pools two groups then share the uplinks of a unit."""
        block_of = self._fabric.block_of
        blocks = [{block_of[name] for name in half} for half in halves]
        others = [[name for name in half if name not in self._candidates] for half in halves]
        if blocks[0].isdisjoint(blocks[1]) and all(others) and max(map(len, halves)) > 1:
            for half, own, new in zip(halves, others, others[::-1], strict=True):
                half[half.index(own[-1])] = new[-1]

    def _pull(self, halves: tuple[list[str], list[str]], name: str) -> int:
        """Return how much more often the node was with leaders of the first half than with those of the second."""
        counts = [sum(self._shared(name, node) for node in half if node in self._leaders) for half in halves]
        return counts[0] - counts[1]

    def _half_or_others(self, alike: Sequence[str]) -> list[str]:
        """Return half of the nodes ``alike``; of a single one those that were always with it, at last itself."""
        leader = next(name for name in alike if name in self._leaders)
        others = [name for name in self._stragglers.companions(leader) if name not in self._candidates]
        half = list(alike[: (len(alike) + 1) // 2])
        return [*half, *others] if len(alike) > 1 else others or half

    def all_but_some(self, names: Nodes) -> RankGroup | None:
        """Return one group without half of the suspects; while there are none, without others each time, then None.

        A single suspect has to be slow in some groups, and its absence has to make others fast.
        """
        most, counted = max_left_out(len(names)), self._stragglers.counted
        classes = [nodes for nodes in self._alike(names) if not self._leaders.isdisjoint(nodes)]
        if not classes:
            out = [name for name in names if all(name in reading.nodes for reading in counted)]
        else:
            out = self._half_or_others(classes[0])
        return self._group([name for name in names if name not in out[:most]]) if out else None
