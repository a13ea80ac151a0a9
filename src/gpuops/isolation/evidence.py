"""Every round of one measurement with its results, and what each result should have been."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, final

from gpuops.bandwidth import Operation
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import GroupResult, RankGroup, Round, Scope

Kind = Literal["slow", "flapping", "link-down", "hang", "unreachable", "wrong", "socket", "no-gpudirect", "error"]
"""``slow`` in every round, ``flapping`` in some; ``link-down`` if the port counted it. The others are troubles
(`gpuops.isolation.rounds.Trouble`)."""
Where = Literal["within nodes", "between nodes", "between units"]


CONFIDENCE = 1e-3
"""The default of `Evidence.confidence`: one healthy part is blamed in 1,000 runs."""


@dataclass(frozen=True)
class Measured:
    """One finished round. ``counters`` are what each NIC counted during it, above 0, by part name and counter."""

    round: Round
    figures: tuple[GroupResult, ...]
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    __hash__ = object.__hash__  # by identity: there are many results, and values computed from them are cached

    @functools.lru_cache(maxsize=64)  # noqa: B019 - bounded, and the result is a cache key itself
    def without(self, nodes: frozenset[str]) -> Measured:
        """Return the same without the groups that contain one of ``nodes``."""
        return self.keeping(lambda figure: nodes.isdisjoint(figure.group.nodes))

    def keeping(self, is_kept: Callable[[GroupResult], bool]) -> Measured:
        """Return the same with only the figures that ``is_kept`` accepts, and their groups; itself if those are all."""
        figures = tuple(figure for figure in self.figures if is_kept(figure))
        if len(figures) == len(self.figures):
            return self
        return replace(self, round=replace(self.round, groups=tuple(f.group for f in figures)), figures=figures)


@dataclass(frozen=True)
class Evidence:
    """A whole measurement; ``scopes`` are the requested ones.

    ``expected`` holds the GB/s that a healthy group reaches at least, if a model or profile provides it; other groups
    are judged only against their peers. ``confidence`` is the allowed chance, for the whole run, that a healthy part is
    blamed. ``operation`` was measured, with ``size_bytes`` per rank; None: as much as is needed to judge.
    """

    fabric: Fabric
    rounds: tuple[Measured, ...] = ()
    expected: Mapping[RankGroup, float] = field(default_factory=dict)
    scopes: tuple[Scope, ...] = ("node", "rail", "pair", "group")
    confidence: float = CONFIDENCE
    operation: Operation = "all_reduce"
    size_bytes: int | None = None

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
    are the healthy nodes with which it was slow, ``units`` the number of units those are from. ``probability`` is an
    upper bound on the chance, for the whole run and fleet, that a healthy part looks like this; None if none was
    computed. ``where`` is what was slow or failed: transfers inside its node, or those between nodes.
    """

    part: str
    kind: Kind
    found_gb_per_s: float | None = None
    expected_gb_per_s: float | None = None
    partners: tuple[str, ...] = ()
    units: int = 0
    evidence: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    probability: float | None = None
    where: Where = "between nodes"

    @property
    def doubt(self) -> str:
        """The probability in words; empty if none was computed."""
        if self.probability is None:
            return ""
        runs = float(f"{1 / max(self.probability, _RAREST):.2g}")
        return f"a healthy fleet shows this in at most 1 of {runs:,.0f} runs"


_RAREST = 1e-6
"""Smaller probabilities are not distinguished: no model of noise is that exact."""


@dataclass(frozen=True)
class CommonCause:
    """What nearly all nodes show, so that no part is blamed for it: a version, setting or build that they share.

    ``nodes`` show it, of ``tested`` that were measured there; on one ``rail`` only, or on all. ``evidence`` holds the
    nodes' own words.
    """

    kind: Kind
    where: Where
    nodes: tuple[str, ...]
    tested: int
    found_gb_per_s: float | None = None
    expected_gb_per_s: float | None = None
    evidence: tuple[str, ...] = ()
    rail: int | None = None

    @property
    def place(self) -> str:
        """Where it shows, and on how many nodes: "rail 3, between units, 24 of 24 nodes"."""
        rail = "" if self.rail is None else f"rail {self.rail}, "
        return f"{rail}{self.where}, {len(self.nodes)} of {self.tested} nodes"

    @property
    def what(self) -> str:
        """The kind in words, with the speed if it is known: "TCP instead of RDMA, 4.8 of 48 GB/s"."""
        if self.found_gb_per_s is None or self.expected_gb_per_s is None:
            return IN_WORDS[self.kind]
        return f"{IN_WORDS[self.kind]}, {self.found_gb_per_s:.3g} of {self.expected_gb_per_s:.3g} GB/s"

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


IN_WORDS: Mapping[Kind, str] = {
    "slow": "slow",
    "flapping": "slow at times",
    "link-down": "the link went down",
    "hang": "never ended",
    "unreachable": "no connection",
    "wrong": "wrong sums",
    "socket": "TCP instead of RDMA",
    "no-gpudirect": "RDMA without GPUDirect",
    "error": "failed",
}
"""Each kind in words."""


@final
class Sentence(str):
    """A sentence about ``parts``, all of which it names; ``about`` is the same without names, in which many agree.

    A report can so print the sentences of many parts as one.
    """

    __slots__ = ("about", "parts")
    parts: tuple[str, ...]
    about: str

    def __new__(cls, text: str, parts: Sequence[str], about: str) -> Sentence:
        """Create the sentence ``text``."""
        sentence = super().__new__(cls, text)
        sentence.parts, sentence.about = tuple(parts), about
        return sentence


@dataclass(frozen=True)
class Blame:
    """The parts that the evidence blames, and what is common to the ``fleet``.

    ``contention`` names pairs and groups that were slow although all that they crossed is healthy; its parts are these.

    ``unclear`` holds sentences on what could not be judged, and why; ``suspects`` are parts that need another round.
    Sentences about parts are each a `Sentence`.
    """

    blamed: tuple[BlamedPart, ...] = ()
    contention: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()
    fleet: tuple[CommonCause, ...] = ()

    @property
    def is_failed(self) -> bool:
        """True if a part or the fleet is at fault."""
        return bool(self.blamed or self.fleet)

    @property
    def is_incomplete(self) -> bool:
        """True if something could not be judged, or not yet."""
        return bool(self.unclear or self.suspects)
