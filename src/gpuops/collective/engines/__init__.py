"""Engines that run an all-reduce on nodes, one module each; all return the same kind of result for the same rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gpuops.bandwidth import Operation
from gpuops.errors import (
    AuthenticationError,
    BecomeError,
    ConnectError,
    EndedError,
    GpuopsError,
    HostKeyError,
    LostError,
)
from gpuops.isolation.rounds import GroupResult, RankGroup, Round, Trouble
from gpuops.probes.nvidia.nccl_log import NcclLog
from gpuops.reasons import Excluded


@dataclass(frozen=True)
class Load:
    """The data that each group of a round moves. Sizes are bytes of one rank's buffer; None: enough to judge by.

    ``seconds`` bounds the measurement of one group if the engine measures by time.
    """

    operation: Operation = "all_reduce"
    size_bytes: int | None = None
    iterations: int = 20
    warmups: int = 5
    seconds: float = 0.25


@dataclass(frozen=True)
class Sweep:
    """The load's operation in one group at several sizes, ascending, as bytes of one rank's buffer.

    ``environment`` overrides NCCL's variables; an engine without NCCL ignores it.
    """

    group: RankGroup
    sizes_bytes: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Point:
    """The result at one size: seconds of one operation, bus bandwidth in GB/s, and the spread of iterations.

    ``algorithm`` is NCCL's choice, such as ``RING/LL``; empty if its log does not contain it.
    """

    size_bytes: int
    seconds: float
    gb_per_s: float
    spread: float = 0.0
    algorithm: str = ""

    @property
    def algbw_gb_per_s(self) -> float:
        """The algorithm bandwidth: the size over the time."""
        return self.size_bytes / self.seconds / 1e9


@dataclass(frozen=True)
class Curve:
    """The result of a sweep: a point for each size, up to the one at which ``trouble`` ended it.

    A size that the memory of a GPU does not hold has no point.
    """

    sweep: Sweep
    points: tuple[Point, ...]
    trouble: Trouble = ""
    absent: tuple[str, ...] = ()
    detail: str = ""
    log: NcclLog = field(default_factory=NcclLog)

    @classmethod
    def failed(
        cls, sweep: Sweep, figure: GroupResult, points: Sequence[Point] = (), log: NcclLog | None = None
    ) -> Curve:
        """Return the curve that ends with the trouble of ``figure``."""
        trouble = figure.trouble or "error"
        return cls(sweep, tuple(points), trouble, figure.absent, figure.detail, log or NcclLog())


def trouble_of_loss(error: GpuopsError) -> Trouble:
    """Classify a node that did not answer: its process ended, or gpuops cannot reach it; a silent process hangs."""
    if isinstance(error, EndedError):
        return "error"
    return "unreachable" if isinstance(error, _UNREACHABLE) else "hang"


_UNREACHABLE = (LostError, ConnectError, HostKeyError, AuthenticationError, BecomeError)


class Engine(Protocol):
    """A program that runs rounds on a pool of nodes. ``why`` states briefly why it was chosen."""

    name: str
    why: str

    @property
    def cost(self) -> str:
        """What `open` will send to the nodes, in words; empty if it is next to nothing."""

    @property
    def settings(self) -> Mapping[str, Sequence[str]]:
        """The settings that may affect a result, in words, for each node that `open` accepted."""

    @property
    def pids(self) -> Mapping[str, Collection[int]]:
        """The engine's current processes on each node; they do not make a node busy."""

    @property
    def jobs(self) -> Collection[str]:
        """The scheduler's jobs through which the engine currently holds nodes; they do not make a node busy."""

    def open(self) -> Mapping[str, Excluded]:
        """Prepare every node; return the nodes that cannot take part."""

    def measure(self, planned: Round) -> tuple[GroupResult, ...]:
        """Return one result per group, in the order of ``planned``. A node's failure becomes the result's trouble."""

    def sweep(self, sweeps: Sequence[Sweep]) -> tuple[Curve, ...]:
        """Run sweeps of different groups side by side; return one curve each, in their order."""

    def close(self) -> None:
        """End the engine's processes on every node. Safe to call twice, and from another thread while measuring."""
