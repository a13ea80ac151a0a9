"""Within a node: what to run next where the GPUs of a node are slow together, and which part of it that accuses; pure.

Once every node was measured by itself, those that are slow run again without NVLink SHARP. If that is well, the
multicast of the switches is at fault and no link. If it is slow too, pairs of GPUs run side by side, each GPU with
another partner in each round, until the slow pairs have their GPUs in common. A node of which no GPU is named must be
slow again, and again. Nodes that are well run the same beside them, as a measure.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Kind, Measured
from gpuops.isolation.fabric import FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round

_SLOW = 0.94
"""Below this share of what like groups give in the same round, a group is slow. Others draw the line at 5 %
(superbench, data-diagnosis.md) and 10 % (huggingface/gpu-fryer); like groups agree within 1 to 2 %."""
_SLOW_PAIR = 0.955
"""The same for pairs of GPUs, where only the pairs that share a GPU count: a node that is slow has a slow part."""
_ALL_SLOW = 0.85
"""Below this share of what the profile expects, all nodes alike have a common fault; cold or small runs do not."""
_CONTROLS = 5
_TIMES_AGAIN = 2
_MOST_PAIR_ROUNDS = 5
_KINDS: Mapping[str, Kind] = {"": "slow", "hang": "hang", "wrong": "wrong"}
"""What a node or GPU is accused of, by a figure's trouble; other troubles accuse nobody inside a node."""


def next_round(evidence: Evidence) -> Round | None:
    """The next round inside nodes; None before the first one, and where nothing is left to ask: after eight at most."""
    views = _views(evidence)
    suspects = [view for view in views if view.step]
    if not suspects or "node" not in evidence.scopes:
        return None
    step = min((view.step for view in suspects), key=_STEPS.index)
    asked = [view for view in suspects if view.step == step]
    controls = [
        view
        for kind in dict.fromkeys(view.kind for view in asked)
        for view in [view for view in views if view.kind == kind and not view.bad][:_CONTROLS]
    ]
    groups = tuple(group for view in (*asked, *controls) for group in view.groups(step))
    names = asked[0].node.name if len(asked) == 1 else f"{len(asked)} nodes"
    return Round("node", groups, f"{names} {_WHY[step]}")


def blame(evidence: Evidence) -> Blame:
    """The parts within nodes that are at fault, as far as they are known; nodes to be asked again are suspects."""
    views = _views(evidence)
    bad = [view for view in views if view.bad]
    return Blame(
        tuple(accusation for view in bad if not view.step for accusation in view.accusations()),
        suspects=tuple(view.node.name for view in bad if view.step),
        unclear=(*_untold(views), *_common_fault(views, evidence)),
    )


_STEPS = ("ring", "pairs", "again")
_WHY = {
    "ring": "slow: without NVLink SHARP, is it the switches or the links?",
    "again": "slow, and no GPU of it alone: is it still?",
    "pairs": "slow: pairs of GPUs, which GPU is it?",
}


_Kind = tuple[int, float | None]
"""What tells machines apart: how many GPUs, and what is expected of them together, in GB/s."""


@dataclass(frozen=True)
class _Reading:
    """A figure, and what like groups of the same round give, in GB/s; None where nothing tells."""

    figure: GroupResult
    normal: float | None

    @property
    def bad(self) -> bool:
        return self.share < (_SLOW_PAIR if self.figure.group.gpus else _SLOW)

    @property
    def share(self) -> float:
        """The share of what is normal; all of it where nothing tells."""
        if self.figure.trouble:
            return 0.0 if self.figure.trouble in _KINDS else 1.0
        return self.figure.gb_per_s / self.normal if self.figure.gb_per_s is not None and self.normal else 1.0

    def __str__(self) -> str:
        if self.figure.trouble:
            return {"hang": "never ended", "wrong": "gave wrong sums"}.get(self.figure.trouble, self.figure.trouble)
        return f"{self.figure.gb_per_s or 0:.0f}" + (f" of {self.normal:.0f} GB/s" if self.normal else " GB/s")


@dataclass(frozen=True)
class _View:
    """What was measured of one node: all its GPUs, also without NVLink SHARP, and its rounds of pairs."""

    node: FabricNode
    kind: _Kind
    whole: tuple[_Reading, ...]
    ring: tuple[_Reading, ...]
    pairs: tuple[tuple[_Reading, ...], ...]

    @functools.cached_property
    def bad(self) -> bool:
        """Whether all its GPUs together are slow, hang or reckon wrong.

        Once they ran again the mean of those times counts, and not the first: of many nodes it is the unluckiest that
        are asked again.
        """
        return statistics.fmean(reading.share for reading in self.whole[1:] or self.whole) < _SLOW

    @functools.cached_property
    def step(self) -> str:
        """What to ask next; empty where the node is well, or nothing more would tell."""
        trouble = bool(self.whole[-1].figure.trouble)
        if not self.bad:
            return ""
        if not self.ring and not trouble:
            return "ring"
        if not self._links_are_well and self._pairs_would_tell:
            return "pairs"
        return "again" if len(self.whole) <= _TIMES_AGAIN and not trouble and not self._faulty else ""

    @property
    def _links_are_well(self) -> bool:
        return bool(self.ring) and self.ring[-1].normal is not None and not self.ring[-1].bad

    @property
    def _pairs_would_tell(self) -> bool:
        done, possible = len(self.pairs), min(_MOST_PAIR_ROUNDS, len(self._rounds_of_pairs))
        if len(self.node.gpus) < 3 or done == possible or self.whole[-1].figure.absent:
            return False
        if done < 2 or self._doubtful == set(self.node.gpus):
            return done < 2
        return any(len(self._own_pairs(gpu)) < 2 for gpu in self._doubtful)

    @functools.cached_property
    def _usual(self) -> float:
        """What its pairs give, as a share of what is normal: where all are slow, one may still be slower."""
        shares = [pair.share for together in self.pairs for pair in together]
        return statistics.median(shares) if shares and max(shares) < _SLOW_PAIR else 1.0

    @functools.cached_property
    def _doubtful(self) -> set[int]:
        """The GPUs none of whose pairs is as well as the node is."""
        pairs = [pair for together in self.pairs for pair in together]
        well = {gpu for pair in pairs if pair.share >= _SLOW_PAIR * self._usual for gpu in pair.figure.group.gpus}
        return {gpu for pair in pairs for gpu in pair.figure.group.gpus} - well

    def _own_pairs(self, gpu: int) -> list[_Reading]:
        """The pairs of ``gpu`` with GPUs that are well in others: no other explains what they give."""
        pairs = [pair for together in self.pairs for pair in together if gpu in pair.figure.group.gpus]
        return [pair for pair in pairs if self._doubtful.isdisjoint({*pair.figure.group.gpus} - {gpu})]

    @functools.cached_property
    def _faulty(self) -> set[int]:
        """The GPUs that are at fault, as far as pairs tell; all of them where none is well."""
        if self._doubtful == set(self.node.gpus) or (self._usual < 1 and not self._doubtful):
            return set(self.node.gpus)
        shares = {gpu: [pair.share for pair in self._own_pairs(gpu)] for gpu in self._doubtful}
        return {gpu for gpu, own in shares.items() if own and statistics.fmean(own) < _SLOW * self._usual}

    @functools.cached_property
    def _rounds_of_pairs(self) -> list[tuple[tuple[int, int], ...]]:
        return list(pairings(self.node.gpus))

    def groups(self, step: str) -> Iterator[RankGroup]:
        """The groups that ``step`` runs on this node."""
        if step != "pairs":
            yield RankGroup((self.node.name,), variant="ring" if step == "ring" else "")
        elif len(self.pairs) < len(self._rounds_of_pairs):
            yield from (RankGroup((self.node.name,), gpus=pair) for pair in self._rounds_of_pairs[len(self.pairs)])

    def accusations(self) -> Iterator[BlamedPart]:
        """Who is at fault on a bad node about which nothing is left to ask."""
        name, worst, faulty = self.node.name, self.whole[-1], sorted(self._faulty)
        if self._links_are_well:
            yield _accuse(
                name, worst, f"without NVLink SHARP {self.ring[-1]}: the multicast of its NVSwitches, no link"
            )
        elif worst.figure.absent:
            yield from (_accuse(part, worst, "did not arrive") for part in worst.figure.absent)
        elif len(self.node.gpus) == 2:
            one, other = (f"{name}:gpu{gpu}" for gpu in self.node.gpus)
            yield _accuse(one, worst, "of its two GPUs it may be either", (other,))
        elif faulty and len(faulty) < len(self.node.gpus):
            yield from (self._accuse_gpu(gpu) for gpu in faulty)
        else:
            yield _accuse(
                name, worst, "every pair of its GPUs shows it" if faulty else "no GPU of it stands out in pairs"
            )

    def _accuse_gpu(self, gpu: int) -> BlamedPart:
        pairs = [pair for together in self.pairs for pair in together]
        own = [pair for pair in pairs if gpu in pair.figure.group.gpus]
        rest = [pair.figure.gb_per_s for pair in pairs if gpu not in pair.figure.group.gpus and pair.figure.gb_per_s]
        others = f", pairs without it {min(rest):.0f}-{max(rest):.0f}" if rest else ""
        worst = min(own, key=lambda pair: pair.figure.gb_per_s or 0.0)
        return _accuse(
            f"{self.node.name}:gpu{gpu}",
            worst,
            f"with each of {len(own)} other GPUs of its node{others}",
            more=(f"all {len(self.node.gpus)} GPUs together: {self.whole[-1]}",),
        )


def _accuse(
    part: str, reading: _Reading, tale: str, alternatives: tuple[str, ...] = (), more: tuple[str, ...] = ()
) -> BlamedPart:
    figure = reading.figure
    told = (f"{reading}: {tale}", *more)
    return BlamedPart(
        part, _KINDS[figure.trouble], figure.gb_per_s, reading.normal, evidence=told, alternatives=alternatives
    )


def _untold(views: Iterable[_View]) -> Iterator[str]:
    """Why nothing is known of a node whose GPUs could not be measured together."""
    for view in views:
        figure = view.whole[-1].figure
        if figure.trouble not in _KINDS or (figure.gb_per_s is None and not figure.trouble):
            why = figure.detail or figure.trouble or "no figure"
            yield f"{view.node.name}: its GPUs were not measured together: {why}"


def _common_fault(views: Sequence[_View], evidence: Evidence) -> Iterator[str]:
    """What slows every node alike accuses none of them."""
    shares = [
        figure.gb_per_s / evidence.expected[figure.group]
        for figure in (view.whole[-1].figure for view in views)
        if figure.gb_per_s is not None and figure.group in evidence.expected
    ]
    if shares and statistics.median(shares) < _ALL_SLOW:
        share = f"{100 * statistics.median(shares):.0f} %"
        yield f"the GPUs of every node give but {share} of what is expected: look for what all nodes have in common"


def _views(evidence: Evidence) -> list[_View]:
    """The nodes that were measured by themselves, each figure beside what is normal in its round."""
    rounds = [measured for measured in evidence.rounds if measured.round.scope == "node"]
    readings: dict[str, list[list[_Reading]]] = {name: [] for name in evidence.fabric.nodes}
    well: set[str] = set()
    for number, measured in enumerate(rounds):
        found = _readings(measured, evidence, well if number else None)
        for name, own in found.items():
            readings[name].append(own)
        if not number:
            well = {name for name, own in found.items() if not any(reading.bad for reading in own)}
    nodes = evidence.fabric.nodes
    views = (_view(nodes[name], _kind(nodes[name], evidence), own) for name, own in readings.items())
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


def _readings(measured: Measured, evidence: Evidence, well: set[str] | None) -> dict[str, list[_Reading]]:
    """The figures of one round by node. ``well`` are the nodes that set the measure; None: the most do."""
    alike: dict[object, list[GroupResult]] = {}
    for figure in measured.figures:
        group = figure.group
        kind = _kind(evidence.fabric.nodes[group.nodes[0]], evidence)
        alike.setdefault((group.variant, len(group.gpus), kind), []).append(figure)
    found: dict[str, list[_Reading]] = {}
    for figures in alike.values():
        normal = _normal(figures, evidence, well)
        for figure in figures:
            found.setdefault(figure.group.nodes[0], []).append(_Reading(figure, normal))
    return found


def _normal(figures: Sequence[GroupResult], evidence: Evidence, well: set[str] | None) -> float | None:
    """What like groups should give: as peers do where there are any, else as expected, else as the better half."""
    peers = [f.gb_per_s for f in figures if f.gb_per_s is not None and (well is None or f.group.nodes[0] in well)]
    if len(peers) >= (3 if well is None else 1):
        return statistics.median(peers)
    expected = [evidence.expected[f.group] for f in figures if f.group in evidence.expected]
    if expected:
        return min(expected)
    values = sorted(f.gb_per_s for f in figures if f.gb_per_s is not None)
    return statistics.median(values[len(values) // 2 :]) if len(values) > 1 else None


def pairings(gpus: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Rounds of disjoint pairs in which all meet all once (the circle method); of an odd number one rests each time."""
    ring: list[int | None] = [*gpus, *([None] if len(gpus) % 2 else [])]
    for _ in range(len(ring) - 1):
        half = len(ring) // 2
        pairs = zip(ring[:half], reversed(ring[half:]), strict=True)
        yield tuple((min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None)
        ring.insert(1, ring.pop())
