"""Methods of a cluster that measure bandwidth on idle hosts, or say what to expect of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuops.calls import Calls
from gpuops.collective.request import SCOPES
from gpuops.requests import (
    ExpectRequest,
    LoopbackRequest,
    MeasureRequest,
    NvlinkRequest,
    SharpRequest,
    SweepRequest,
)

if TYPE_CHECKING:
    from gpuops.bandwidth import Operation
    from gpuops.collective.loopback import Loopback
    from gpuops.collective.measurement import Measurement
    from gpuops.collective.nvlink import NvlinkComparison
    from gpuops.collective.sharp import SharpComparison
    from gpuops.collective.sweep import SweepResult, SweepScope
    from gpuops.facts import Facts
    from gpuops.isolation.rounds import Scope
    from gpuops.results.expectation import Expectation


class Measurements(Calls):
    """Measurements of a cluster's hosts; each method passes the request of the same name to `ask`."""

    def allreduce(
        self,
        *,
        engine: str = "auto",
        scopes: Sequence[Scope] = SCOPES,
        operation: Operation = "all_reduce",
        gib: float | None = None,
        seconds: float = 0.25,
        force_busy: Sequence[str] = (),
        interface: str = "",
        libnccl: Path | None = None,
        facts: Mapping[str, Facts] | None = None,
        keep_answers: bool = False,
        confidence: float = 1e-3,
        save_run: bool = True,
    ) -> Measurement:
        """Measure all GPU and network links of idle hosts, and name the slow parts."""
        words = engine, scopes, operation, gib, seconds, force_busy, interface, libnccl, facts, keep_answers
        return self.ask(MeasureRequest(*words, confidence, save_run))

    def allreduce_expected(
        self,
        *,
        nodes: int | None = None,
        gib: float | None = None,
        facts: Mapping[str, Facts] | None = None,
        operation: Operation = "all_reduce",
    ) -> Expectation:
        """Return the bandwidth to expect of an all-reduce, or of another operation, with formulas and sources."""
        return self.ask(ExpectRequest(nodes, gib, facts, operation))

    def nvlink(
        self,
        *,
        engine: str = "auto",
        gib: float | None = None,
        force_busy: Sequence[str] = (),
        libnccl: Path | None = None,
        train: str | None = None,
        steps: int = 200,
        batch: int = 4,
        row_timeout: float = 900.0,
    ) -> NvlinkComparison:
        """Measure the gain from NVLink on each idle host, in an all-reduce and, with ``train``, in training."""
        return self.ask(NvlinkRequest(engine, gib, force_busy, libnccl, train, steps, batch, row_timeout))

    def loopback(self, *, force_busy: Sequence[str] = ()) -> Loopback:
        """Measure each HCA of the idle hosts with itself, to tell a slow HCA or PCIe slot from a slow cable."""
        return self.ask(LoopbackRequest(force_busy))

    def sharp(
        self,
        *,
        engine: str = "auto",
        gib: float | None = None,
        force_busy: Sequence[str] = (),
        libnccl: Path | None = None,
    ) -> SharpComparison:
        """Measure the gain from NVLink SHARP within each idle host, and from SHARP switches between them."""
        return self.ask(SharpRequest(engine, gib, force_busy, libnccl))

    def sweep(
        self,
        *,
        engine: str = "auto",
        scope: SweepScope | None = None,
        operation: Operation = "all_reduce",
        min_size: int = 1 << 10,
        max_size: int | None = None,
        seconds: float = 0.25,
        force_busy: Sequence[str] = (),
        interface: str = "",
        libnccl: Path | None = None,
    ) -> SweepResult:
        """Measure bandwidth by size between idle hosts or within each, and the crossover from latency to bandwidth."""
        words = engine, scope, operation, min_size, max_size, seconds, force_busy, interface, libnccl
        return self.ask(SweepRequest(*words))
