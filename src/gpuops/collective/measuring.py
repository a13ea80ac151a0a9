"""A measurement from end to end: proof of idleness, lease, network tests, engine and rounds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuops.collective.engines import Engine, Load
from gpuops.collective.engines.nccl.engine import NcclEngine, Options
from gpuops.collective.engines.nccl_tests.engine import NcclTestsEngine
from gpuops.collective.engines.tcp import TcpEngine
from gpuops.collective.expectations import Expectations
from gpuops.collective.idleness.lease import Lease
from gpuops.collective.idleness.monitor import Allocations, IdleMonitor
from gpuops.collective.measurement import Measurement
from gpuops.collective.network_tests.ladder import Ladder
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.collective.pool import Pool
from gpuops.collective.request import ENGINES, MeasureRequest
from gpuops.collective.session import Plan, run
from gpuops.errors import format_count
from gpuops.facts import Facts
from gpuops.isolation import blame, next_round
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.node_evidence import all_reduce, excluded_answer, to_answers
from gpuops.isolation.rounds import Round, Scope
from gpuops.profile import Profile
from gpuops.reasons import Excluded

_TCP_SCOPES: tuple[Scope, ...] = ("rail", "group")  # a node's only network is its only rail


@dataclass(frozen=True)
class MeasureContext:
    """The surroundings of a measurement: the scheduler's allocations, and the lease to take.

    ``slurm_job`` is the job in which gpuops runs. ``note`` receives sentences for the waiting user, ``activity`` the
    current activity in a few words, and ``on_round`` the evidence so far and each round before it starts.
    """

    allocations: Allocations
    lease: Lease
    slurm_job: str = ""
    note: Callable[[str], None] = lambda _sentence: None
    activity: Callable[[str], None] = lambda _words: None
    on_round: Callable[[Evidence, Round], None] = lambda _evidence, _planned: None

    def monitor(
        self, pool: Pool, profiles: Mapping[str, Profile], force_busy: Collection[str], running: Sequence[Engine] = ()
    ) -> IdleMonitor:
        """Return the monitor of ``pool``; ``force_busy`` nodes count as idle, and so does the work of ``running``."""
        return IdleMonitor(
            pool,
            profiles,
            force_busy,
            self.slurm_job,
            pids=lambda: running[0].pids if running else {},
            jobs=lambda: running[0].jobs if running else (),
            allocations=self.allocations,
        )


def measure(
    pool: Pool,
    fabric: Fabric,
    profiles: Mapping[str, Profile],
    request: MeasureRequest,
    context: MeasureContext,
    *,
    plan: Plan = next_round,
    iterations: int = Load.iterations,
    engines: Sequence[str] = ENGINES,
) -> Measurement:
    """Measure the nodes of ``pool`` that are proved idle, and put no load on the others.

    ``fabric`` describes their NICs. ``plan`` returns the next round, and each round runs ``iterations``. ``auto``
    chooses from ``engines``. If no node can be measured, the evidence is empty.
    """
    began = time.monotonic()
    with ready_engine(pool, fabric, profiles, request, context, iterations=iterations, engines=engines) as ready:
        if ready is None:
            return _nothing(pool, request, time.monotonic() - began)
        measurement = _measured(ready, pool, request, context, plan)
        return replace(measurement, failures=ready.failures, seconds=time.monotonic() - began)


@dataclass(frozen=True)
class ReadyEngine:
    """An open engine, the ``fabric`` of the nodes that it can measure, and the failed network tests of the others.

    For tcp, the fabric is one interface of each node.
    """

    engine: Engine
    fabric: Fabric
    expectations: Expectations
    monitor: IdleMonitor
    failures: Sequence[NetworkFailure]


@contextlib.contextmanager
def ready_engine(
    pool: Pool,
    fabric: Fabric,
    profiles: Mapping[str, Profile],
    request: MeasureRequest,
    context: MeasureContext,
    *,
    iterations: int = Load.iterations,
    engines: Sequence[str] = ENGINES,
) -> Iterator[ReadyEngine | None]:
    """Yield an open engine on the nodes of ``pool`` that are idle and pass the network tests; None if none is idle."""
    running: list[Engine] = []
    with idle_nodes(pool, profiles, request, context, running) as monitor:
        if not pool.hosts:
            yield None
            return
        expectations = Expectations(
            _within(pool, fabric), profiles, size_bytes=request.size_bytes, operation=request.operation
        )
        load = Load(request.operation, request.size_bytes, iterations, seconds=request.seconds)
        engine = choose(pool, expectations, request, load, context.note, engines)
        running.append(engine)
        try:
            failures = Ladder(
                pool,
                request.interface,
                over_rdma=engine.name != "tcp",
                on_test=lambda test: context.activity(f"before the load: {test}"),
            ).run()
            fabric = engine.fabric() if isinstance(engine, TcpEngine) else fabric
            yield ReadyEngine(engine, _within(pool, fabric), expectations, monitor, failures)
        finally:
            engine.close()


def _nothing(pool: Pool, request: MeasureRequest, seconds: float) -> Measurement:
    evidence, why = Evidence(Fabric({}), scopes=tuple(request.scopes)), "no node is left to measure"
    return Measurement(evidence, blame(evidence), "none", why, dict(pool.excluded), seconds=seconds)


@contextlib.contextmanager
def idle_nodes(
    pool: Pool,
    profiles: Mapping[str, Profile],
    request: MeasureRequest,
    context: MeasureContext,
    running: Sequence[Engine] = (),
) -> Iterator[IdleMonitor]:
    """Keep only the nodes in ``pool`` that are proved idle, and lease them; ``running`` engines make no node busy."""
    monitor = context.monitor(pool, profiles, request.force_busy, running)
    in_use = [reason for idleness in monitor.prove().values() if (reason := idleness.excluded)]
    pool.exclude(replace(reason, why=f"skipped: {reason.why}") for reason in in_use)
    with context.lease as lease:
        refused = lease.take(list(pool.hosts.values()))
        pool.exclude(Excluded(name, "leased", f"skipped: {why}") for name, why in refused.items())
        yield monitor


def _within(pool: Pool, fabric: Fabric) -> Fabric:
    return Fabric({name: fabric.nodes[name] for name in pool.hosts if name in fabric.nodes})


def choose(
    pool: Pool,
    expectations: Expectations,
    request: MeasureRequest,
    load: Load,
    note: Callable[[str], None],
    engines: Sequence[str] = ENGINES,
) -> Engine:
    """Open the requested engine, or for ``auto`` the first that most nodes can run; exclude the other nodes."""
    names = engines if request.engine == "auto" else (request.engine,)
    for name in names:
        engine = _make(name, pool, expectations, request, load)
        if engine.cost:
            note(engine.cost)
        refused = engine.open()
        if name == names[-1] or 2 * len(refused) < len(pool.hosts):
            pool.exclude(refused.values())
            return engine
        engine.close()
        count = f"{len(refused)} of {format_count(len(pool.hosts), 'node')}"
        note(f"engine {name}: {count} cannot run it: {_most_frequent([reason.why for reason in refused.values()])}")
    raise AssertionError("the last engine is always chosen")


def _most_frequent(reasons: Sequence[str]) -> str:
    return max(reasons, key=list(reasons).count)


def _make(name: str, pool: Pool, expectations: Expectations, request: MeasureRequest, load: Load) -> Engine:
    hosts, fabric = list(pool.hosts.values()), expectations.fabric
    if name == "nccl":
        return NcclEngine(hosts, pool, fabric, load, Options(library=request.libnccl))
    if name == "nccl-tests":
        return NcclTestsEngine(hosts, pool, fabric, load, expect=expectations.threshold_for)
    return TcpEngine(hosts, pool, load, interface=request.interface)


def _measured(
    ready: ReadyEngine, pool: Pool, request: MeasureRequest, context: MeasureContext, plan: Plan
) -> Measurement:
    engine, expectations, fabric = ready.engine, ready.expectations, ready.fabric
    is_tcp = isinstance(engine, TcpEngine)
    scopes = tuple(scope for scope in request.scopes if not is_tcp or scope in _TCP_SCOPES)
    session = run(
        engine,
        Evidence(
            fabric,
            scopes=scopes,
            confidence=request.confidence,
            operation=request.operation,
            size_bytes=request.size_bytes,
        ),
        plan=plan,
        monitor=ready.monitor,
        threshold_for=(lambda _group: None) if is_tcp else expectations.threshold_for,
        on_round=context.on_round,
    )
    evidence = session.evidence
    learnt = replace(expectations, fabric=fabric).learnt_from(evidence)
    return Measurement(
        evidence,
        _blame(evidence, session.lost),
        engine.name,
        engine.why,
        {**pool.excluded, **session.excluded},
        {name: settings for name, settings in engine.settings.items() if name in evidence.fabric.nodes},
        expected={} if is_tcp else learnt.of_evidence(evidence),
        unread_counters={name: why for name, why in session.unread.items() if name in evidence.fabric.nodes},
        interrupted=session.interrupted,
    )


def _blame(evidence: Evidence, lost: Sequence[BlamedPart]) -> Blame:
    """Return the parts that the evidence blames, after the nodes that were lost in the middle of a round."""
    verdict = blame(evidence)
    return replace(verdict, blamed=(*lost, *verdict.blamed))


def with_evidence(facts_by_node: Mapping[str, Facts], measurement: Measurement) -> dict[str, Facts]:
    """Return the facts of all nodes with their results, or with the reason why a node took no part."""
    answers = {name: excluded_answer(reason) for name, reason in measurement.excluded.items()}
    answers |= to_answers(measurement.evidence, measurement.engine, measurement.settings)
    return {
        name: facts.with_answer(answers[name], all_reduce) if name in answers else facts
        for name, facts in facts_by_node.items()
    }
