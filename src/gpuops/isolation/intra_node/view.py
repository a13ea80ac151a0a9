"""One node as its own rounds show it: what is in doubt, which step would show more, and which GPUs explain it; pure."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuops.isolation.certainty import rounds_to_decide
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric, FabricNode
from gpuops.isolation.flapping import Flapping
from gpuops.isolation.intra_node.readings import (
    SLOW,
    NodeKind,
    NodeReading,
    NodeSpread,
    log_ratios,
    middle,
    node_kind,
    readings_by_node,
)
from gpuops.isolation.rounds import RankGroup
from gpuops.isolation.spread import Certainty, bound, log_e_needed

_SLOW_PAIR = 0.955
"""Below this fraction a pair of GPUs is slow; only pairs that share a GPU are compared: a slow node has a slow part."""
_MAX_REPEATS = 8
"""A slow node runs again this many times; fewer if it is sure that it is slow, or that it is not."""
_ENOUGH_REPEATS = 3
_MAX_PAIR_ROUNDS = 7
_CONFIRMING = 2
"""A node whose links are healthy runs as a whole so often again: it may be well by now."""
_CLEAR_SCALES = 6
"""One round without NVLink SHARP tells switches from links if the node is slow by this many times the scatter ..."""
_RING_ROUNDS = 3
"""... otherwise the median of so many does."""
_MAX_FLAPPING = 16
"""A node that is slow in some rounds only is measured at most this many times more."""
_PATIENCE, _PATIENCE_IF_COMMON = 8, 4
"""... and so often if it is healthy in these. A fault that acts in 45 % of the rounds would show in 4 of them with a
chance of 91 %. Where other nodes are slow at times, too, disturbances are common, and many healthy nodes show one."""
_WORTH_SAYING = 0.1
"""Where disturbances are common, what healthy fleets show more often than this is one of them."""
MAX_LATER = 18
"""Rounds after the first ones in which some nodes are measured; what is not decided then is unclear."""

Step = Literal["", "again", "ring", "pairs"]
STEPS: tuple[Step, ...] = ("again", "ring", "pairs")


@dataclass(frozen=True)
class NodeView:
    """The readings of one node: all its GPUs, the same without NVLink SHARP, and its rounds of pairs.

    ``first`` is the number of the rounds that measured every node. If the plan ``is_over``, no step is left.
    """

    node: FabricNode
    kind: NodeKind
    whole: tuple[NodeReading, ...]
    ring: tuple[NodeReading, ...]
    pairs: tuple[tuple[NodeReading, ...], ...]
    spread: NodeSpread
    first: int
    is_over: bool

    @functools.cached_property
    def doubt(self) -> Literal["", "failed", "slow", "flapping"]:
        """What its rounds show of all its GPUs together: nothing, a failure, that they are slow, or that at times."""
        if self.failure is not None:
            return "failed"
        if any(self._low(self.whole)) and self.certainty.slow_share < 1:
            return "" if self._is_well_again else "flapping"
        return "slow" if self.judged.ratio < self.spread.slow_edge else ""

    @functools.cached_property
    def failure(self) -> NodeReading | None:
        """The last round that hung or gave wrong sums, which no healthy node does, else the last one if it failed."""
        certain = [reading for reading in self.whole if reading.figure.trouble in {"hang", "wrong"}]
        last = self.whole[-1]
        return certain[-1] if certain else last if last.figure.trouble else None

    @functools.cached_property
    def judged(self) -> NodeReading:
        """The reading that stands for all runs of all its GPUs: the failure, else the median.

        If they ran again, the later runs count: among many nodes, the unluckiest are measured again.
        """
        later = self._later
        return self.failure or middle(later if len(later) >= _ENOUGH_REPEATS else self.whole)

    @property
    def _later(self) -> tuple[NodeReading, ...]:
        return self.whole[self.first :]

    @functools.cached_property
    def certainty(self) -> Certainty:
        """How sure it is that all GPUs together are slow, from all their rounds."""
        return self.spread.whole(self.node.name).certainty(log_ratios(self.whole))

    @functools.cached_property
    def flapping(self) -> Flapping:
        """Which GPU explains the rounds, if the node is slow in some of them only."""
        values = {gpu: log_ratios(p for p in self.all_pairs if gpu in p.figure.group.gpus) for gpu in self.node.gpus}
        name = self.node.name
        return Flapping(log_ratios(self.whole), self.spread.whole(name), values, self.spread.pairs(name))

    @property
    def log_e(self) -> float:
        """The logarithm of the node's e-value."""
        return self.flapping.log_e if self.doubt == "flapping" else self.certainty.log_e

    @functools.cached_property
    def probability(self) -> float:
        """Bound on the chance, for the whole run, that any healthy node is as slow as this one in its rounds."""
        return bound(self.log_e, self.spread.nodes)

    @property
    def is_sure(self) -> bool:
        """True if a healthy node would hardly be as slow as this one."""
        return self.failure is not None or self.probability <= self.spread.confidence

    @functools.cached_property
    def more_rounds(self) -> int | None:
        """How many more rounds would decide at the present rate; None if the evidence does not grow."""
        rounds = len(self.whole) + (len(self.pairs) if self.doubt == "flapping" else 0)
        needed = log_e_needed(self.spread.confidence, self.spread.nodes)
        return rounds_to_decide(Certainty(self.log_e, 0.0, 1.0, rounds), needed)

    @functools.cached_property
    def step(self) -> Step:
        """The next step to measure; empty if the node is healthy, or if no measurement would show more."""
        if self.is_over or not self.doubt:
            return ""
        if self.doubt == "flapping":
            return self._flapping_step
        if self._again_helps:
            return "again"
        if self.doubt == "slow" and self.is_sure and self._ring_helps:
            return "ring"
        if not self.links_are_healthy and self._more_pairs_help:
            return "pairs"
        return "again" if self.doubt == "slow" and self.is_sure and self._may_be_healthy_now else ""

    @property
    def _again_helps(self) -> bool:
        later = len(self._later)
        if self.doubt == "failed":
            return self.whole[-1].figure.trouble == "error" and not any(r.figure.trouble for r in self.whole[-2:-1])
        if self.is_sure or later >= _MAX_REPEATS:
            return False
        return later < _ENOUGH_REPEATS or self.more_rounds is not None

    @property
    def _may_be_healthy_now(self) -> bool:
        """True if the steps since it was sure show no slow link: the fault may act in some rounds only."""
        last = max(reading.number for reading in (*self.ring, *self.all_pairs))
        is_shown = (self.suspect_gpus or self._typical_ratio < 1) and not self.links_are_healthy
        return not is_shown and sum(reading.number > last for reading in self.whole) < _CONFIRMING

    @property
    def _ring_helps(self) -> bool:
        depth = -math.log(self.judged.ratio)
        is_clear = depth > _CLEAR_SCALES * self.spread.whole(self.node.name).scale
        return not self.pairs and len(self.ring) < (1 if is_clear else _RING_ROUNDS)

    # What is slow at times

    def _low(self, readings: Iterable[NodeReading]) -> Iterator[NodeReading]:
        return (reading for reading in readings if 0 < reading.ratio < self.spread.low_edge)

    @functools.cached_property
    def _is_common(self) -> bool:
        return bool(self.spread.nodes_low_at_times - {self.node.name})

    @property
    def _is_hopeless(self) -> bool:
        """True if it was healthy so often since that more rounds would hardly show anything."""
        later = len(self._later) + len(self.pairs)
        return later >= (_PATIENCE_IF_COMMON if self._is_common else _PATIENCE) and self.flapping.log_e <= 0

    @property
    def _is_well_again(self) -> bool:
        """True if what it showed was a disturbance: one slow round, or what many nodes of this fleet show."""
        is_over = self._is_hopeless or len(self._later) + len(self.pairs) >= _MAX_FLAPPING
        if not is_over or bound(self.flapping.log_e, self.spread.nodes) <= _WORTH_SAYING:
            return False
        return self._is_common or sum(1 for _ in self._low((*self.whole, *self.all_pairs))) == 1

    @property
    def _flapping_step(self) -> Step:
        again, pairs = len(self._later), len(self.pairs)
        is_decided = self.is_sure and (self.flapping.is_located(self.spread.confidence) or len(self.node.gpus) < 3)
        if is_decided or self._is_hopeless or again + pairs >= _MAX_FLAPPING:
            return ""
        shows_in_pairs = any(self._low(self.all_pairs))
        return "pairs" if len(self.node.gpus) > 2 and (shows_in_pairs or pairs <= again + 1) else "again"

    # What pairs of GPUs show

    @property
    def links_are_healthy(self) -> bool:
        """True if the node is as fast as others without NVLink SHARP."""
        return bool(self.ring) and self.ring[-1].normal is not None and middle(self.ring).ratio >= self._edge(SLOW)

    def _edge(self, most: float) -> float:
        """Return what is nearer to healthy than to this node's ratio, at least ``most``."""
        return max(most, (1 + self.judged.ratio) / 2)

    @property
    def _more_pairs_help(self) -> bool:
        count, max_count = len(self.pairs), min(_MAX_PAIR_ROUNDS, len(self._rounds_of_pairs))
        if len(self.node.gpus) < 3 or count >= max_count or self.judged.figure.absent or not self.is_sure:
            return False
        if count < 2 or self.suspect_gpus == set(self.node.gpus):
            return count < 2
        return any(len(self.own_pairs(gpu)) < 2 or not self._is_sure_of(gpu) for gpu in self.suspect_gpus)

    def _is_sure_of(self, gpu: int) -> bool:
        """Return True if a healthy GPU of a slow node would hardly be as slow in its pairs, or if one of them fails."""
        ratios = [pair.ratio / self._typical_ratio for pair in self.own_pairs(gpu)]
        if not all(ratios):
            return True
        log_e = self.spread.pairs(self.node.name).certainty([math.log(ratio) for ratio in ratios]).log_e
        return math.log(len(self.node.gpus)) - log_e <= math.log(self.spread.confidence)

    @functools.cached_property
    def _typical_ratio(self) -> float:
        """The median ratio of its pairs if all are slow, otherwise 1: one of several slow pairs may still be slower."""
        ratios = [pair.ratio for pair in self.all_pairs]
        return statistics.median(ratios) if ratios and max(ratios) < self._edge(_SLOW_PAIR) else 1.0

    @functools.cached_property
    def suspect_gpus(self) -> set[int]:
        """The GPUs without any pair as fast as is typical of the node."""
        edge = self._edge(_SLOW_PAIR) * self._typical_ratio
        healthy = {gpu for pair in self.all_pairs if pair.ratio >= edge for gpu in pair.figure.group.gpus}
        return {gpu for pair in self.all_pairs for gpu in pair.figure.group.gpus} - healthy

    def own_pairs(self, gpu: int) -> list[NodeReading]:
        """Return the pairs of ``gpu`` with GPUs that are healthy in others: no other GPU explains their results."""
        pairs = [pair for pair in self.all_pairs if gpu in pair.figure.group.gpus]
        return [pair for pair in pairs if self.suspect_gpus.isdisjoint({*pair.figure.group.gpus} - {gpu})]

    @functools.cached_property
    def faulty_gpus(self) -> set[int]:
        """The GPUs at fault, as far as pairs show; all of them if none is healthy."""
        if self.suspect_gpus == set(self.node.gpus) or (self._typical_ratio < 1 and not self.suspect_gpus):
            return set(self.node.gpus)
        ratios_by_gpu = {gpu: [pair.ratio for pair in self.own_pairs(gpu)] for gpu in self.suspect_gpus}
        edge = self._edge(SLOW) * self._typical_ratio
        slow = {gpu for gpu, ratios in ratios_by_gpu.items() if ratios and statistics.fmean(ratios) < edge}
        return {gpu for gpu in slow if self._is_sure_of(gpu)}

    @property
    def all_pairs(self) -> Iterator[NodeReading]:
        """Every reading of a pair of its GPUs."""
        return itertools.chain.from_iterable(self.pairs)

    @functools.cached_property
    def _rounds_of_pairs(self) -> list[tuple[tuple[int, int], ...]]:
        return list(pairings(self.node.gpus))

    def groups(self, step: Step) -> Iterator[RankGroup]:
        """Yield the groups that ``step`` runs on this node."""
        if step != "pairs":
            yield RankGroup((self.node.name,), variant="ring" if step == "ring" else "")
        elif len(self.node.gpus) > 1:
            number = len(self.pairs) % len(self._rounds_of_pairs)
            yield from (RankGroup((self.node.name,), gpus=gpus) for gpus in self._rounds_of_pairs[number])


def node_views(evidence: Evidence) -> tuple[NodeView, ...]:
    """Return the nodes that were measured by themselves, each result beside the normal one of its round."""
    rounds = tuple(measured for measured in evidence.rounds if measured.round.scope == "node")
    expected = tuple((group, rate) for group, rate in evidence.expected.items() if len(group.nodes) == 1)
    return _node_views(evidence.fabric, rounds, expected, evidence.confidence)


@functools.lru_cache(maxsize=8)
def _node_views(fabric: Fabric, rounds: object, expected: object, confidence: float) -> tuple[NodeView, ...]:
    """Return the same; each plan and each judgement of the rounds between nodes asks for it again."""
    evidence = Evidence(fabric, rounds, dict(expected), confidence=confidence)  # type: ignore[arg-type, call-overload]
    readings, first = readings_by_node(evidence)
    measured = {name: own for name, own in readings.items() if own}
    spread, is_over = NodeSpread(measured, confidence), len(evidence.rounds) >= first + MAX_LATER
    views = (_view(fabric.nodes[n], own, spread, evidence, first, is_over) for n, own in measured.items())
    return tuple(view for view in views if view.whole)


def _view(
    node: FabricNode,
    rounds: Iterable[Sequence[NodeReading]],
    spread: NodeSpread,
    evidence: Evidence,
    first: int,
    is_over: bool,  # noqa: FBT001
) -> NodeView:
    whole, ring, pairs = list[NodeReading](), list[NodeReading](), list[tuple[NodeReading, ...]]()
    for readings in rounds:
        group = readings[0].figure.group
        if group.gpus:
            pairs.append(tuple(readings))
        elif group.variant in {"", "ring"}:
            (ring if group.variant else whole).extend(readings)
    kind = node_kind(node, evidence)
    return NodeView(node, kind, tuple(whole), tuple(ring), tuple(pairs), spread, first, is_over)


def pairings(gpus: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield rounds of disjoint pairs, each pair once (the circle method); with an odd number, one GPU rests."""
    ring: list[int | None] = [*gpus, *([None] if len(gpus) % 2 else [])]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield tuple((min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None)
        ring.insert(1, ring.pop())
