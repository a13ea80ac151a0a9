"""The next rounds for a node whose GPUs are slow together, and the part of the node that the results blame; pure.

After every node was measured by itself, the slow ones run again without NVLink SHARP. If that is as fast as usual, the
multicast of the switches is at fault and not a link. If it is slow too, pairs of GPUs run side by side, each GPU with
another partner in each round, until the slow pairs have their GPUs in common. A node in which no GPU stands out must be
slow two more times. Healthy nodes run the same rounds as a control.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Kind, Measured
from gpuops.isolation.fabric import FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.spread import Spread, bound

_SLOW = 0.94
"""Below this fraction of comparable groups in the same round, a group is slow. Others draw the line at 5 % (superbench,
data-diagnosis.md) and 10 % (huggingface/gpu-fryer); comparable groups agree within 1 to 2 %."""
_SLOW_PAIR = 0.955
"""The same for pairs of GPUs, of which only those that share a GPU are compared: a slow node has a slow part."""
_CONTROLS = 5
_MIN_REPEATS, _MAX_REPEATS = 2, 4
"""A slow node runs again this many times; more than the least only while it is not sure that it is slow."""
_MAX_PAIR_ROUNDS = 5
_KINDS: Mapping[str, Kind] = {"": "slow", "hang": "hang", "wrong": "wrong", "error": "error"}
"""The kind of a fault inside a node, by a result's trouble; other troubles blame no part of a node."""


def next_round(evidence: Evidence) -> Round | None:
    """Return the next round inside nodes, ten at most; None before the first one and when the plan is empty."""
    views = _views(evidence)
    suspects = [view for view in views if view.step]
    if not suspects or "node" not in evidence.scopes:
        return None
    step = min((view.step for view in suspects), key=_STEPS.index)
    selected = [view for view in suspects if view.step == step]
    controls = [
        view
        for kind in dict.fromkeys(view.kind for view in selected)
        for view in [view for view in views if view.kind == kind and not view.is_slow][:_CONTROLS]
    ]
    groups = tuple(group for view in (*selected, *controls) for group in view.groups(step))
    subject = selected[0].node.name if len(selected) == 1 else f"{len(selected)} nodes"
    return Round("node", groups, f"{subject} {_WHY[step]}")


def blame(evidence: Evidence) -> Blame:
    """Return the faulty parts within nodes, as far as known; nodes that must be measured again are suspects."""
    views = _views(evidence)
    slow = [view for view in views if view.is_slow]
    return Blame(
        tuple(blamed for view in slow if not view.step and view.is_sure for blamed in view.blamed_parts()),
        suspects=tuple(view.node.name for view in slow if view.step),
        unclear=(*_not_measured(views), *_unsure(views)),
    )


_STEPS = ("again", "ring", "pairs")
_WHY = {
    "again": "slow or failed: run again",
    "ring": "slow: run without NVLink SHARP, to tell switches from links",
    "pairs": "slow: run pairs of GPUs, to find the GPU",
}


_Kind = tuple[int, float | None]
"""What makes nodes comparable: the number of GPUs, and their expected bandwidth together, in GB/s."""


@dataclass(frozen=True)
class _Reading:
    """A result and the GB/s that comparable groups of the same round reach; None if that is unknown."""

    figure: GroupResult
    normal: float | None

    @property
    def is_slow(self) -> bool:
        return self.ratio < (_SLOW_PAIR if self.figure.group.gpus else _SLOW)

    @property
    def ratio(self) -> float:
        """The fraction of the normal bandwidth; 1 if that is unknown."""
        if self.figure.trouble:
            return 0.0 if self.figure.trouble in _KINDS else 1.0
        return self.figure.gb_per_s / self.normal if self.figure.gb_per_s is not None and self.normal else 1.0

    def __str__(self) -> str:
        if self.figure.trouble:
            return {"hang": "never ended", "wrong": "gave wrong sums"}.get(self.figure.trouble, self.figure.trouble)
        return f"{self.figure.gb_per_s or 0:.0f}" + (f" of {self.normal:.0f} GB/s" if self.normal else " GB/s")


@dataclass(frozen=True)
class _View:
    """The readings of one node: all its GPUs, the same without NVLink SHARP, and its rounds of pairs."""

    node: FabricNode
    kind: _Kind
    whole: tuple[_Reading, ...]
    ring: tuple[_Reading, ...]
    pairs: tuple[tuple[_Reading, ...], ...]
    scatter: _Scatter

    @functools.cached_property
    def is_slow(self) -> bool:
        """True if all its GPUs together are slow, hang, fail or compute wrong sums.

        If they ran again, the median of the later runs counts: among many nodes, the unluckiest are measured again.
        """
        return self.judged.is_slow

    @functools.cached_property
    def judged(self) -> _Reading:
        """The reading that stands for all runs of all its GPUs: the last failure, else the median of the later runs."""
        if self.has_failed or len(self.whole) == 1:
            return self.whole[-1]
        return sorted(self.whole[1:], key=lambda reading: reading.ratio)[len(self.whole[1:]) // 2]

    @property
    def has_failed(self) -> bool:
        """True if the last run of all its GPUs has no speed."""
        return bool(self.whole[-1].figure.trouble)

    @functools.cached_property
    def probability(self) -> float:
        """Bound on the chance, for the whole run, that any healthy node is as slow as this one in all its runs."""
        values = [math.log(reading.ratio) for reading in self.whole if reading.ratio]
        log_e = self.scatter.whole(self.node.name).certainty(values).log_e
        return bound(log_e, self.scatter.nodes)

    @property
    def is_sure(self) -> bool:
        """True if a healthy node would hardly be as slow as this one."""
        return self.has_failed or self.probability <= self.scatter.confidence

    @functools.cached_property
    def step(self) -> str:
        """The next step to measure; empty if the node is healthy, or if no measurement would show more."""
        if not self.is_slow:
            return ""
        if self._again_helps:
            return "again"
        if not self.ring and not self.has_failed:
            return "ring"
        return "pairs" if not self._links_are_healthy and self._more_pairs_help else ""

    @property
    def _again_helps(self) -> bool:
        repeats = len(self.whole) - 1
        if self.has_failed:
            return self.whole[-1].figure.trouble == "error" and not repeats
        return repeats < _MIN_REPEATS or (repeats < _MAX_REPEATS and not self.is_sure)

    @property
    def _links_are_healthy(self) -> bool:
        return bool(self.ring) and self.ring[-1].normal is not None and not self.ring[-1].is_slow

    @property
    def _more_pairs_help(self) -> bool:
        count, max_count = len(self.pairs), min(_MAX_PAIR_ROUNDS, len(self._rounds_of_pairs))
        if len(self.node.gpus) < 3 or count == max_count or self.whole[-1].figure.absent or not self.is_sure:
            return False
        if count < 2 or self._suspect_gpus == set(self.node.gpus):
            return count < 2
        return any(len(self._own_pairs(gpu)) < 2 or not self._is_sure_of(gpu) for gpu in self._suspect_gpus)

    def _is_sure_of(self, gpu: int) -> bool:
        """Return True if a healthy GPU of a slow node would hardly be as slow in its pairs, or if one of them fails."""
        ratios = [pair.ratio / self._typical_ratio for pair in self._own_pairs(gpu)]
        if not all(ratios):
            return True
        log_e = self.scatter.pairs(self.node.name).certainty([math.log(ratio) for ratio in ratios]).log_e
        return math.log(len(self.node.gpus)) - log_e <= math.log(self.scatter.confidence)

    @functools.cached_property
    def _typical_ratio(self) -> float:
        """The median ratio of its pairs if all are slow, otherwise 1: one of several slow pairs may still be slower."""
        ratios = [pair.ratio for pair in self._all_pairs]
        return statistics.median(ratios) if ratios and max(ratios) < _SLOW_PAIR else 1.0

    @functools.cached_property
    def _suspect_gpus(self) -> set[int]:
        """The GPUs without any pair as fast as is typical of the node."""
        fast_pairs = (pair for pair in self._all_pairs if pair.ratio >= _SLOW_PAIR * self._typical_ratio)
        healthy = {gpu for pair in fast_pairs for gpu in pair.figure.group.gpus}
        return {gpu for pair in self._all_pairs for gpu in pair.figure.group.gpus} - healthy

    def _own_pairs(self, gpu: int) -> list[_Reading]:
        """Return the pairs of ``gpu`` with GPUs that are healthy in others: no other GPU explains their results."""
        pairs = [pair for pair in self._all_pairs if gpu in pair.figure.group.gpus]
        return [pair for pair in pairs if self._suspect_gpus.isdisjoint({*pair.figure.group.gpus} - {gpu})]

    @functools.cached_property
    def _faulty_gpus(self) -> set[int]:
        """The GPUs at fault, as far as pairs show; all of them if none is healthy."""
        if self._suspect_gpus == set(self.node.gpus) or (self._typical_ratio < 1 and not self._suspect_gpus):
            return set(self.node.gpus)
        ratios_by_gpu = {gpu: [pair.ratio for pair in self._own_pairs(gpu)] for gpu in self._suspect_gpus}
        edge = _SLOW * self._typical_ratio
        slow = {gpu for gpu, ratios in ratios_by_gpu.items() if ratios and statistics.fmean(ratios) < edge}
        return {gpu for gpu in slow if self._is_sure_of(gpu)}

    @property
    def _all_pairs(self) -> Iterator[_Reading]:
        return itertools.chain.from_iterable(self.pairs)

    @functools.cached_property
    def _rounds_of_pairs(self) -> list[tuple[tuple[int, int], ...]]:
        return list(pairings(self.node.gpus))

    def groups(self, step: str) -> Iterator[RankGroup]:
        """Yield the groups that ``step`` runs on this node."""
        if step != "pairs":
            yield RankGroup((self.node.name,), variant="ring" if step == "ring" else "")
        elif len(self.pairs) < len(self._rounds_of_pairs):
            yield from (RankGroup((self.node.name,), gpus=gpus) for gpus in self._rounds_of_pairs[len(self.pairs)])

    def blamed_parts(self) -> Iterator[BlamedPart]:
        """Yield the faulty parts of a slow node that needs no further measurement."""
        name, worst, faulty = self.node.name, self.judged, sorted(self._faulty_gpus)
        if self._links_are_healthy:
            yield self._blamed_part(
                name, worst, f"without NVLink SHARP {self.ring[-1]}: the multicast of its NVSwitches, not a link"
            )
        elif worst.figure.trouble == "error" and not self._names_gpus(faulty):
            return  # the whole node fails, perhaps for a reason that is not its GPUs
        elif worst.figure.absent:
            yield from (self._blamed_part(part, worst, "did not arrive") for part in worst.figure.absent)
        elif len(self.node.gpus) == 2:
            one, other = (f"{name}:gpu{gpu}" for gpu in self.node.gpus)
            yield self._blamed_part(one, worst, "either of its two GPUs may be at fault", (other,))
        elif faulty and len(faulty) < len(self.node.gpus):
            yield from (self._blamed_gpu(gpu) for gpu in faulty)
        else:
            yield self._blamed_part(
                name, worst, "every pair of its GPUs shows it" if faulty else "no single GPU stands out in pairs"
            )

    def _names_gpus(self, faulty: Sequence[int]) -> bool:
        """Return True if a failure points to some GPUs and not to all of them."""
        absent = [name for name in self.judged.figure.absent if name != self.node.name]
        return 0 < len(absent or faulty) < len(self.node.gpus)

    def _blamed_gpu(self, gpu: int) -> BlamedPart:
        own_pairs = [pair for pair in self._all_pairs if gpu in pair.figure.group.gpus]
        other_figures = (pair.figure for pair in self._all_pairs if gpu not in pair.figure.group.gpus)
        other_rates = [figure.gb_per_s for figure in other_figures if figure.gb_per_s]
        others = f", pairs without it {min(other_rates):.0f}-{max(other_rates):.0f}" if other_rates else ""
        worst = min(own_pairs, key=lambda pair: pair.figure.gb_per_s or 0.0)
        return self._blamed_part(
            f"{self.node.name}:gpu{gpu}",
            worst,
            f"with each of {len(own_pairs)} other GPUs of its node{others}",
            more=(f"all {len(self.node.gpus)} GPUs together: {self.judged}",),
        )

    def _blamed_part(
        self,
        part: str,
        reading: _Reading,
        detail: str,
        alternatives: tuple[str, ...] = (),
        more: tuple[str, ...] = (),
    ) -> BlamedPart:
        figure = reading.figure
        return BlamedPart(
            part,
            _KINDS[figure.trouble],
            figure.gb_per_s,
            reading.normal,
            evidence=(f"{reading}: {detail}", *filter(None, (figure.detail,)), *more),
            alternatives=alternatives,
            probability=None if self.has_failed else self.probability,
        )


def _not_measured(views: Iterable[_View]) -> Iterator[str]:
    """Yield the nodes whose GPUs could not be measured together, and why; an error blames only single GPUs."""
    for view in views:
        figure = view.whole[-1].figure
        is_blamed = figure.trouble in _KINDS and (figure.trouble != "error" or any(view.blamed_parts()))
        if not is_blamed or (figure.gb_per_s is None and not figure.trouble):
            why = figure.detail or figure.trouble or "no result"
            yield f"{view.node.name}: its GPUs could not be measured together: {why}"


def _unsure(views: Iterable[_View]) -> Iterator[str]:
    """Yield the nodes that may be slow, but that healthy nodes could look like."""
    for view in views:
        if view.is_slow and not view.step and not view.is_sure:
            yield f"{view.node.name}: {view.judged} within it, which {view.probability:.2g} of healthy runs would show"


def _views(evidence: Evidence) -> list[_View]:
    """Return the nodes that were measured by themselves, each result beside the normal one of its round."""
    rounds = [measured for measured in evidence.rounds if measured.round.scope == "node"]
    readings: dict[str, list[list[_Reading]]] = {name: [] for name in evidence.fabric.nodes}
    healthy: set[str] = set()
    for number, measured in enumerate(rounds):
        readings_by_node = _readings(measured, evidence, healthy if number else None)
        for name, own_readings in readings_by_node.items():
            readings[name].append(own_readings)
        if not number:
            healthy = {name for name, own in readings_by_node.items() if not any(reading.is_slow for reading in own)}
    nodes = evidence.fabric.nodes
    scatter = _Scatter(readings, evidence.confidence)
    views = (_view(nodes[name], _kind(nodes[name], evidence), own, scatter) for name, own in readings.items())
    return [view for view in views if view.whole]


class _Scatter:
    """The spread of the nodes' results: of all GPUs together and of pairs, each without the node that is judged."""

    def __init__(self, readings: Mapping[str, Sequence[Sequence[_Reading]]], confidence: float) -> None:
        self.nodes, self.confidence = max(1, len(readings)), confidence
        self._readings = readings

    @functools.lru_cache(maxsize=256)  # noqa: B019 - as many as there are slow nodes
    def whole(self, but: str) -> Spread:
        """Return the spread of all GPUs of a node together, over all nodes except ``but``."""
        return self._spread(but, of_pairs=False)

    @functools.lru_cache(maxsize=256)  # noqa: B019 - as many as there are slow nodes
    def pairs(self, but: str) -> Spread:
        """Return the spread of pairs of GPUs, over all nodes except ``but``."""
        return self._spread(but, of_pairs=True)

    def _spread(self, but: str, *, of_pairs: bool) -> Spread:
        return Spread(
            math.log(reading.ratio)
            for name, rounds in self._readings.items()
            if name != but
            for own in rounds
            for reading in own
            if reading.ratio and bool(reading.figure.group.gpus) == of_pairs and not reading.figure.group.variant
        )


def _kind(node: FabricNode, evidence: Evidence) -> _Kind:
    return len(node.gpus), evidence.expected.get(RankGroup((node.name,)))


def _view(node: FabricNode, kind: _Kind, rounds: Iterable[list[_Reading]], scatter: _Scatter) -> _View:
    whole, ring, pairs = list[_Reading](), list[_Reading](), list[tuple[_Reading, ...]]()
    for readings in rounds:
        group = readings[0].figure.group
        if group.gpus:
            pairs.append(tuple(readings))
        elif group.variant in {"", "ring"}:
            (ring if group.variant else whole).extend(readings)
    return _View(node, kind, tuple(whole), tuple(ring), tuple(pairs), scatter)


def _readings(measured: Measured, evidence: Evidence, healthy: set[str] | None) -> dict[str, list[_Reading]]:
    """Return the readings of one round by node. ``healthy`` nodes set the normal level; if None, the majority does."""
    figures_by_kind: dict[object, list[GroupResult]] = {}
    for figure in measured.figures:
        group = figure.group
        kind = _kind(evidence.fabric.nodes[group.nodes[0]], evidence)
        figures_by_kind.setdefault((group.variant, len(group.gpus), kind), []).append(figure)
    readings_by_node: dict[str, list[_Reading]] = {}
    for figures in figures_by_kind.values():
        normal = _normal(figures, evidence, healthy)
        for figure in figures:
            readings_by_node.setdefault(figure.group.nodes[0], []).append(_Reading(figure, normal))
    return readings_by_node


def _normal(figures: Sequence[GroupResult], evidence: Evidence, healthy: set[str] | None) -> float | None:
    """Return what comparable groups should reach: as their peers, else as expected, else as the better half."""
    peers = [f.gb_per_s for f in figures if f.gb_per_s is not None and (healthy is None or f.group.nodes[0] in healthy)]
    if len(peers) >= (3 if healthy is None else 1):
        return statistics.median(peers)
    expected = [evidence.expected[f.group] for f in figures if f.group in evidence.expected]
    if expected:
        return min(expected)
    values = sorted(f.gb_per_s for f in figures if f.gb_per_s is not None)
    return statistics.median(values[len(values) // 2 :]) if len(values) > 1 else None


def pairings(gpus: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield rounds of disjoint pairs, each pair once (the circle method); with an odd number, one GPU rests."""
    ring: list[int | None] = [*gpus, *([None] if len(gpus) % 2 else [])]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield tuple((min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None)
        ring.insert(1, ring.pop())
