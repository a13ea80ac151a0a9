"""The next rounds for a node whose GPUs are slow together, and the part of the node that the results blame; pure.

After every node was measured by itself, the slow ones run again without NVLink SHARP. If that is as fast as usual, the
multicast of the switches is at fault and not a link. If it is slow too, pairs of GPUs run side by side, each GPU with
another partner in each round, until the slow pairs have their GPUs in common. A node in which no GPU stands out must be
slow two more times. Healthy nodes run the same rounds as a control.
"""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Kind, Measured
from gpuops.isolation.fabric import FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round

_SLOW = 0.94
"""Below this fraction of comparable groups in the same round, a group is slow. Others draw the line at 5 % (superbench,
data-diagnosis.md) and 10 % (huggingface/gpu-fryer); comparable groups agree within 1 to 2 %."""
_SLOW_PAIR = 0.955
"""The same for pairs of GPUs, of which only those that share a GPU are compared: a slow node has a slow part."""
_ALL_SLOW = 0.85
"""If all nodes reach less than this fraction of what the profile expects, they have a common fault. Cold or small runs
reach more."""
_CONTROLS = 5
_REPEATS = 2
_MAX_PAIR_ROUNDS = 5
_KINDS: Mapping[str, Kind] = {"": "slow", "hang": "hang", "wrong": "wrong"}
"""The kind of a fault inside a node, by a result's trouble; other troubles blame no part of a node."""


def next_round(evidence: Evidence) -> Round | None:
    """Return the next round inside nodes, eight at most; None before the first one and when the plan is empty."""
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
        tuple(blamed for view in slow if not view.step for blamed in view.blamed_parts()),
        suspects=tuple(view.node.name for view in slow if view.step),
        unclear=(*_not_measured(views), *_common_fault(views, evidence)),
    )


_STEPS = ("ring", "pairs", "again")
_WHY = {
    "ring": "slow: run without NVLink SHARP, to tell switches from links",
    "again": "slow, but no single GPU is: run again",
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

    @functools.cached_property
    def is_slow(self) -> bool:
        """True if all its GPUs together are slow, hang or compute wrong sums.

        If they ran again, only the mean of the later runs counts: among many nodes, the unluckiest are measured again.
        """
        return statistics.fmean(reading.ratio for reading in self.whole[1:] or self.whole) < _SLOW

    @functools.cached_property
    def step(self) -> str:
        """The next step to measure; empty if the node is healthy, or if no measurement would show more."""
        has_failed = bool(self.whole[-1].figure.trouble)
        if not self.is_slow:
            return ""
        if not self.ring and not has_failed:
            return "ring"
        if not self._links_are_healthy and self._more_pairs_help:
            return "pairs"
        return "again" if len(self.whole) <= _REPEATS and not has_failed and not self._faulty_gpus else ""

    @property
    def _links_are_healthy(self) -> bool:
        return bool(self.ring) and self.ring[-1].normal is not None and not self.ring[-1].is_slow

    @property
    def _more_pairs_help(self) -> bool:
        count, max_count = len(self.pairs), min(_MAX_PAIR_ROUNDS, len(self._rounds_of_pairs))
        if len(self.node.gpus) < 3 or count == max_count or self.whole[-1].figure.absent:
            return False
        if count < 2 or self._suspect_gpus == set(self.node.gpus):
            return count < 2
        return any(len(self._own_pairs(gpu)) < 2 for gpu in self._suspect_gpus)

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
        return {gpu for gpu, ratios in ratios_by_gpu.items() if ratios and statistics.fmean(ratios) < edge}

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
        name, worst, faulty = self.node.name, self.whole[-1], sorted(self._faulty_gpus)
        if self._links_are_healthy:
            yield _blamed_part(
                name, worst, f"without NVLink SHARP {self.ring[-1]}: the multicast of its NVSwitches, not a link"
            )
        elif worst.figure.absent:
            yield from (_blamed_part(part, worst, "did not arrive") for part in worst.figure.absent)
        elif len(self.node.gpus) == 2:
            one, other = (f"{name}:gpu{gpu}" for gpu in self.node.gpus)
            yield _blamed_part(one, worst, "either of its two GPUs may be at fault", (other,))
        elif faulty and len(faulty) < len(self.node.gpus):
            yield from (self._blamed_gpu(gpu) for gpu in faulty)
        else:
            yield _blamed_part(
                name, worst, "every pair of its GPUs shows it" if faulty else "no single GPU stands out in pairs"
            )

    def _blamed_gpu(self, gpu: int) -> BlamedPart:
        own_pairs = [pair for pair in self._all_pairs if gpu in pair.figure.group.gpus]
        other_figures = (pair.figure for pair in self._all_pairs if gpu not in pair.figure.group.gpus)
        other_rates = [figure.gb_per_s for figure in other_figures if figure.gb_per_s]
        others = f", pairs without it {min(other_rates):.0f}-{max(other_rates):.0f}" if other_rates else ""
        worst = min(own_pairs, key=lambda pair: pair.figure.gb_per_s or 0.0)
        return _blamed_part(
            f"{self.node.name}:gpu{gpu}",
            worst,
            f"with each of {len(own_pairs)} other GPUs of its node{others}",
            more=(f"all {len(self.node.gpus)} GPUs together: {self.whole[-1]}",),
        )


def _blamed_part(
    part: str, reading: _Reading, detail: str, alternatives: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> BlamedPart:
    figure = reading.figure
    sentences = (f"{reading}: {detail}", *more)
    return BlamedPart(
        part, _KINDS[figure.trouble], figure.gb_per_s, reading.normal, evidence=sentences, alternatives=alternatives
    )


def _not_measured(views: Iterable[_View]) -> Iterator[str]:
    """Yield the nodes whose GPUs could not be measured together, and why."""
    for view in views:
        figure = view.whole[-1].figure
        if figure.trouble not in _KINDS or (figure.gb_per_s is None and not figure.trouble):
            why = figure.detail or figure.trouble or "no result"
            yield f"{view.node.name}: its GPUs could not be measured together: {why}"


def _common_fault(views: Sequence[_View], evidence: Evidence) -> Iterator[str]:
    """Yield a sentence if every node is slow: that blames none of them."""
    ratios = [
        figure.gb_per_s / evidence.expected[figure.group]
        for figure in (view.whole[-1].figure for view in views)
        if figure.gb_per_s is not None and figure.group in evidence.expected
    ]
    if ratios and statistics.median(ratios) < _ALL_SLOW:
        percent = f"{100 * statistics.median(ratios):.0f} %"
        yield f"the GPUs of every node reach only {percent} of the expectation: check what all nodes have in common"


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
    views = (_view(nodes[name], _kind(nodes[name], evidence), own_rounds) for name, own_rounds in readings.items())
    return [view for view in views if view.whole]


def _kind(node: FabricNode, evidence: Evidence) -> _Kind:
    return len(node.gpus), evidence.expected.get(RankGroup((node.name,)))


def _view(node: FabricNode, kind: _Kind, rounds: Iterable[list[_Reading]]) -> _View:
    whole, ring, pairs = list[_Reading](), list[_Reading](), list[tuple[_Reading, ...]]()
    for readings in rounds:
        group = readings[0].figure.group
        if group.gpus:
            pairs.append(tuple(readings))
        elif group.variant in {"", "ring"}:
            (ring if group.variant else whole).extend(readings)
    return _View(node, kind, tuple(whole), tuple(ring), tuple(pairs))


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
