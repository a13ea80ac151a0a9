"""Sweeps on nodes that stay idle: what a plan returns, batch after batch, with a snapshot of the nodes around each."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuops.bandwidth import ExpectedBandwidth, min_payload_bytes
from gpuops.collective.engines import Curve, Engine, Sweep
from gpuops.collective.measuring import MeasureContext, ReadyEngine, ready_engine
from gpuops.collective.pool import Pool
from gpuops.collective.request import ENGINES, NVLINK_ENGINES, MeasureRequest, SweepRequest
from gpuops.collective.session import Snapshot
from gpuops.collective.sweep import SweepResult, SweepScope
from gpuops.errors import CancelledError
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import RankGroup
from gpuops.profile import Profile
from gpuops.reasons import Excluded

_MOST_BYTES = 8 << 30
_MOST_TCP_BYTES = 64 << 20

SweepPlan = Callable[[Sequence[str], Sequence[Curve]], Sequence[Sweep]]
"""Returns the sweeps to run side by side, from the nodes that are left and the curves so far; none at the end."""


@dataclass
class SweepSession:
    """The curves so far, the nodes that are left, and those that were excluded in the meantime."""

    nodes: list[str]
    curves: list[Curve] = field(default_factory=list)
    excluded: dict[str, Excluded] = field(default_factory=dict)
    interrupted: bool = False

    def run(
        self,
        engine: Engine,
        plan: SweepPlan,
        monitor: Callable[[Collection[str]], Snapshot],
        on_batch: Callable[[Sequence[Sweep]], None] = lambda _sweeps: None,
    ) -> None:
        """Run what ``plan`` returns until it returns nothing; on Ctrl-C, keep what was measured so far.

        Before and after each batch, ``monitor`` proves that its nodes are idle. A busy node is excluded with its
        curves, and the batch is planned again without it.
        """
        try:
            while sweeps := plan(self.nodes, self.curves):
                on_batch(sweeps)
                nodes = {node for sweep in sweeps for node in sweep.group.nodes}
                if not self._drop(monitor(nodes)):
                    self.curves += engine.sweep(sweeps)
                    self._drop(monitor(nodes))
        except (KeyboardInterrupt, CancelledError):
            self.interrupted = True

    def _drop(self, snapshot: Snapshot) -> bool:
        """Drop the nodes that are excluded, with their curves; return whether there are any."""
        gone = snapshot.excluded
        self.excluded |= gone
        self.nodes = [node for node in self.nodes if node not in gone]
        self.curves = [curve for curve in self.curves if gone.keys().isdisjoint(curve.sweep.group.nodes)]
        return bool(gone)


def measure(
    pool: Pool, fabric: Fabric, profiles: Mapping[str, Profile], request: SweepRequest, context: MeasureContext
) -> SweepResult:
    """Sweep the nodes of ``pool`` that are proved idle; if none is left, there is no curve."""
    began = time.monotonic()
    scope: SweepScope = request.scope or ("group" if len(pool.hosts) > 1 else "node")
    nothing = SweepResult(request.operation, scope, "none", "no node is left to measure")
    engines = ENGINES if scope == "group" else NVLINK_ENGINES
    with ready_engine(pool, fabric, profiles, _as_measurement(request, scope), context, engines=engines) as ready:
        if ready is None:
            return replace(nothing, excluded=dict(pool.excluded), seconds=time.monotonic() - began)
        session = SweepSession(list(ready.fabric.nodes))
        session.run(
            ready.engine,
            _plan(ready, request, scope),
            ready.monitor,
            lambda sweeps: context.activity(f"{len(sweeps[0].sizes_bytes)} sizes of {request.operation}"),
        )
        return replace(
            nothing,
            engine=ready.engine.name,
            engine_why=ready.engine.why,
            nodes=session.nodes,
            curves=session.curves,
            excluded={**pool.excluded, **session.excluded},
            settings={node: words for node, words in ready.engine.settings.items() if node in session.nodes},
            failures=ready.failures,
            expected=dict(_expected(ready, session.curves)),
            interrupted=session.interrupted,
            seconds=time.monotonic() - began,
        )


def _as_measurement(request: SweepRequest, scope: SweepScope) -> MeasureRequest:
    return MeasureRequest(
        request.engine,
        (scope,),
        request.operation,
        seconds=request.seconds,
        force_busy=request.force_busy,
        interface=request.interface,
        libnccl=request.libnccl,
    )


def _plan(ready: ReadyEngine, request: SweepRequest, scope: SweepScope) -> SweepPlan:
    """Return the plan: each node by itself, or all nodes that are left together, once."""

    def plan(nodes: Sequence[str], curves: Sequence[Curve]) -> Sequence[Sweep]:
        groups: list[tuple[str, ...]]
        measured = {node for curve in curves for node in curve.sweep.group.nodes}
        missing = [node for node in nodes if node not in measured]
        if scope == "node":
            groups = [(node,) for node in missing]
        else:
            groups = [tuple(nodes)] if missing and len(nodes) > 1 else []
        return [Sweep(RankGroup(group), _sizes(request, _most_bytes(ready, group))) for group in groups]

    return plan


def _most_bytes(ready: ReadyEngine, nodes: Sequence[str]) -> int:
    """Return the largest size if none is requested, rounded up to a power of two."""
    if ready.engine.name == "tcp":
        return _MOST_TCP_BYTES
    ranks = sum(len(ready.fabric.nodes[node].gpus) for node in nodes)
    return min(_MOST_BYTES, 1 << (min_payload_bytes(ranks) - 1).bit_length())


def _sizes(request: SweepRequest, most_bytes: int) -> tuple[int, ...]:
    sizes, most = [request.min_size], request.max_size or max(most_bytes, request.min_size)
    while 2 * sizes[-1] <= most:
        sizes.append(2 * sizes[-1])
    return tuple(sizes)


def _expected(ready: ReadyEngine, curves: Sequence[Curve]) -> Iterator[tuple[RankGroup, ExpectedBandwidth]]:
    """Yield what groups should reach at their largest size; over TCP nothing is known."""
    for curve in curves if ready.engine.name != "tcp" else ():
        if curve.points and not curve.trouble:
            expectations = replace(ready.expectations, size_bytes=curve.points[-1].size_bytes)
            expected = expectations.of(curve.sweep.group)
            if expected:
                yield curve.sweep.group, expected
