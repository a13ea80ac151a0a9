"""Measurement session: runs rounds until the plan is empty, with a snapshot of the nodes before and after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpuops.collective.engines import Engine
from gpuops.errors import CancelledError
from gpuops.isolation.evidence import BlamedPart, Evidence, Kind, Measured
from gpuops.isolation.remedies import fix_for
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.reasons import Excluded

_JUST_NOW_SECONDS = 1.0
Counters = Mapping[str, Mapping[str, int]]
"""The counters of each NIC so far, by part name and counter."""
Plan = Callable[[Evidence], Round | None]
"""Returns the round to measure next; None if nothing is left to measure."""


@dataclass(frozen=True)
class Snapshot:
    """The state of nodes just before or after a round: which are excluded and why, and the others' counters.

    ``unread`` says which counters of a node cannot be read, and why.
    """

    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    counters: Counters = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SessionResult:
    """A session's evidence, the nodes that were excluded during it, and whether it was interrupted.

    ``lost`` blames the nodes that were missing in a round before they were excluded: their results left the evidence
    with them. ``unread`` is that of the snapshots.
    """

    evidence: Evidence
    excluded: Mapping[str, Excluded]
    lost: tuple[BlamedPart, ...] = ()
    interrupted: bool = False
    unread: Mapping[str, str] = field(default_factory=dict)


def run(
    engine: Engine,
    evidence: Evidence,
    *,
    plan: Plan,
    monitor: Callable[[Collection[str]], Snapshot],
    threshold_for: Callable[[RankGroup], float | None],
    on_round: Callable[[Evidence, Round], None] = lambda _evidence, _planned: None,
) -> SessionResult:
    """Measure what ``plan`` returns until it returns None.

    Just before each round ``monitor`` proves that its nodes are idle. A busy node is excluded, and the round is planned
    again without it. ``threshold_for`` returns the GB/s by which a group is judged. ``on_round`` is called before each
    round. On Ctrl-C the result is what was measured so far.
    """
    session = _Session(evidence)
    last = _LastSnapshot()
    try:
        while (planned := plan(session.evidence)) is not None:
            on_round(session.evidence, planned)
            nodes = {name for group in planned.groups for name in group.nodes}
            before = last.snapshot if last.serves(nodes) else monitor(nodes)
            if before.excluded:
                session.exclude(before.excluded)
                continue
            figures = engine.measure(planned)
            after = monitor(nodes)
            last = _LastSnapshot(after, frozenset(nodes - after.excluded.keys()), time.monotonic())
            thresholds = {group: rate for group in planned.groups if (rate := threshold_for(group)) is not None}
            session.add(Measured(planned, figures, _increases(before.counters, after.counters)), thresholds)
            session.unread |= after.unread
            session.exclude(after.excluded)
    except (KeyboardInterrupt, CancelledError):
        return session.result(interrupted=True)
    return session.result()


class _Session:
    """The evidence so far, and the nodes that left it."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.excluded: dict[str, Excluded] = {}
        self.lost: dict[str, BlamedPart] = {}
        self.unread: dict[str, str] = {}

    def add(self, measured: Measured, thresholds: Mapping[RankGroup, float]) -> None:
        """Add a round."""
        expected = {**self.evidence.expected, **thresholds}
        self.evidence = replace(self.evidence, rounds=(*self.evidence.rounds, measured), expected=expected)

    def exclude(self, excluded: Mapping[str, Excluded]) -> None:
        """Drop nodes and their results; blame those that were missing in a round before."""
        missing = {blamed.part: blamed for blamed in _lost(self.evidence, excluded)}
        self.excluded |= {**excluded, **{node: _as_lost(missing[node]) for node in missing}}
        self.lost |= missing
        self.evidence = self.evidence.without(excluded)

    def result(self, *, interrupted: bool = False) -> SessionResult:
        """Return the result so far."""
        return SessionResult(self.evidence, self.excluded, tuple(self.lost.values()), interrupted, self.unread)


def _lost(evidence: Evidence, excluded: Mapping[str, Excluded]) -> Iterator[BlamedPart]:
    """Yield the nodes in ``excluded`` that were missing in the last round in which they took part.

    If a rank failed on a node that is merely in use, the other user may be the reason.
    """
    for name, reason in excluded.items():
        figure = _last_figure(evidence, name)
        if figure is None or not _is_missing(name, figure):
            continue
        kind = _LOST.get(figure.trouble)
        if kind and (kind != "error" or not reason.on_purpose):
            words = figure.detail or "it was missing in a round"
            yield BlamedPart(name, kind, evidence=(words, reason.why))


def _last_figure(evidence: Evidence, node: str) -> GroupResult | None:
    """Return the result of ``node`` in its last round, the one from which it was missing if there are several."""
    for measured in reversed(evidence.rounds):
        own = [figure for figure in measured.figures if node in figure.group.nodes]
        if own:
            return max(own, key=lambda figure: _is_missing(node, figure))
    return None


def _is_missing(node: str, figure: GroupResult) -> bool:
    """Return True if ``node`` or one of its GPUs did not arrive."""
    return any(part.partition(":")[0] == node for part in figure.absent)


def _as_lost(blamed: BlamedPart) -> Excluded:
    return Excluded(blamed.part, "lost", "; ".join(blamed.evidence), do=fix_for(blamed))


_LOST: Mapping[str, Kind] = {"hang": "hang", "unreachable": "unreachable", "error": "error"}


@dataclass(frozen=True)
class _LastSnapshot:
    """The snapshot after a round, which is reused if the next round follows at once on the same nodes."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    nodes: frozenset[str] = frozenset()
    at: float = 0.0

    def serves(self, nodes: Collection[str]) -> bool:
        """Return True if all of ``nodes`` were inspected just now."""
        return self.nodes.issuperset(nodes) and time.monotonic() - self.at < _JUST_NOW_SECONDS


def _increases(before: Counters, after: Counters) -> dict[str, dict[str, int]]:
    """Return by how much each counter increased; a counter that fell was reset in between and shows nothing."""
    increases = {part: _increases_of_part(before.get(part, {}), now) for part, now in after.items()}
    return {part: counts for part, counts in increases.items() if counts}


def _increases_of_part(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in after.items() if count > before.get(name, count)}
