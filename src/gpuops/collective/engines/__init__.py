"""Engines: the ways to run an all-reduce on nodes, one file each; all give the same figures for the same rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuops.bandwidth import Operation
from gpuops.isolation.rounds import GroupResult, Round
from gpuops.reasons import Excluded


@dataclass(frozen=True)
class Load:
    """What every group of a round moves. Sizes are bytes of one rank's buffer; None: what the engine needs to judge.

    ``seconds`` bounds the measuring of one group where the engine measures by time.
    """

    operation: Operation = "all_reduce"
    size_bytes: int | None = None
    iterations: int = 20
    warmups: int = 5
    seconds: float = 0.25


class Engine(Protocol):
    """A way to run rounds on a pool of nodes. ``why`` says in a few words why it was taken."""

    name: str
    why: str

    @property
    def cost(self) -> str:
        """What `open` will send to the nodes, in words; empty where it is next to nothing."""

    @property
    def settings(self) -> Mapping[str, Sequence[str]]:
        """What may change a figure, in words, for each node that `open` found able to take part."""

    @property
    def pids(self) -> Mapping[str, Collection[int]]:
        """The processes that it has on each node at present: they make nobody busy."""

    @property
    def jobs(self) -> Collection[str]:
        """The scheduler's jobs by which it holds the nodes at present: they make nobody busy either."""

    def open(self) -> Mapping[str, Excluded]:
        """Make every node ready; return the nodes that cannot take part."""

    def measure(self, planned: Round) -> tuple[GroupResult, ...]:
        """One figure a group, in the order of ``planned``; what goes wrong on a node is a figure's trouble."""

    def close(self) -> None:
        """End every process of ours on every node; safe to call twice, and from another thread while measuring."""
