"""Every round of one measurement with its results, and what each result should have been."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import GroupResult, RankGroup, Round, Scope

Kind = Literal["slow", "hang", "unreachable", "wrong", "socket"]


@dataclass(frozen=True)
class Measured:
    """One finished round. ``counters`` are the errors above 0 that each NIC counted during it, by part name."""

    round: Round
    figures: tuple[GroupResult, ...]
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    __hash__ = object.__hash__  # by identity: there are many results, and values computed from them are cached

    @functools.lru_cache(maxsize=64)  # noqa: B019 - bounded, and the result is a cache key itself
    def without(self, nodes: frozenset[str]) -> Measured:
        """Return the same without the groups that contain one of ``nodes``."""
        figures = tuple(figure for figure in self.figures if nodes.isdisjoint(figure.group.nodes))
        if len(figures) == len(self.figures):
            return self
        return replace(self, round=replace(self.round, groups=tuple(f.group for f in figures)), figures=figures)


@dataclass(frozen=True)
class Evidence:
    """A whole measurement; ``scopes`` are the requested ones.

    ``expected`` holds GB/s by group, if a model or profile provides it; other groups are judged only against their
    peers.
    """

    fabric: Fabric
    rounds: tuple[Measured, ...] = ()
    expected: Mapping[RankGroup, float] = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ("node", "rail", "pair", "group")

    def without(self, nodes: Collection[str]) -> Evidence:
        """Return the same without ``nodes`` and the figures of their groups."""
        gone = frozenset(nodes)
        if not gone:
            return self
        rounds = (measured.without(gone) for measured in self.rounds)
        return replace(self, fabric=self.fabric.without(gone), rounds=tuple(m for m in rounds if m.figures))


@dataclass(frozen=True)
class BlamedPart:
    """One part at fault, with the measured and the expected GB/s, and the chain of evidence in words.

    ``alternatives`` are other parts that explain the results equally well: the fault is in one of them. ``partners``
    are the healthy nodes with which it was slow, ``units`` the number of units those are from.
    """

    part: str
    kind: Kind
    found_gb_per_s: float | None = None
    expected_gb_per_s: float | None = None
    partners: tuple[str, ...] = ()
    units: int = 0
    evidence: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Blame:
    """The parts that the evidence blames. ``contention`` names pairs that were slow once but not again.

    ``unclear`` holds sentences on what could not be judged, and why; ``suspects`` are parts that need another round.
    """

    blamed: tuple[BlamedPart, ...] = ()
    contention: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
