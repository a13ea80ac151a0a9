"""Evidence: every round of one measurement with its figures, and what each figure should have been."""

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
    """One round that was run. ``counters`` are the errors that each NIC counted meanwhile, by part name, if above 0."""

    round: Round
    figures: tuple[GroupResult, ...]
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    __hash__ = object.__hash__  # by identity: figures are many, and what was learnt of them is remembered

    @functools.lru_cache(maxsize=64)  # noqa: B019 - bounded, and what is learnt of the result is remembered by it
    def without(self, nodes: frozenset[str]) -> Measured:
        """The same without the groups that one of ``nodes`` had a part in."""
        figures = tuple(figure for figure in self.figures if nodes.isdisjoint(figure.group.nodes))
        if len(figures) == len(self.figures):
            return self
        return replace(self, round=replace(self.round, groups=tuple(f.group for f in figures)), figures=figures)


@dataclass(frozen=True)
class Evidence:
    """A whole measurement; ``scopes`` are those that were asked for.

    ``expected`` gives GB/s by group where a model or profile knows it; a group that is absent is judged against its
    peers alone.
    """

    fabric: Fabric
    rounds: tuple[Measured, ...] = ()
    expected: Mapping[RankGroup, float] = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ("node", "rail", "pair", "group")

    def without(self, nodes: Collection[str]) -> Evidence:
        """The same without ``nodes`` and every figure that one of them had a part in."""
        gone = frozenset(nodes)
        if not gone:
            return self
        rounds = (measured.without(gone) for measured in self.rounds)
        return replace(self, fabric=self.fabric.without(gone), rounds=tuple(m for m in rounds if m.figures))


@dataclass(frozen=True)
class BlamedPart:
    """One part at fault, with GB/s found and expected, and the chain of evidence in words.

    ``alternatives`` are other parts that the same figures fit as well: the fault is in one of them.
    ``partners`` are the known-good nodes against which it was slow, ``units`` how many units those are from.
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
    """What the evidence says. ``contention`` names pairs that were slow once and not again; nobody is accused of it.

    ``unclear`` says in words what could not be told and why; ``suspects`` are parts that need another round.
    """

    accusations: tuple[BlamedPart, ...] = ()
    contention: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
