"""Measuring: from a pool of nodes to evidence: proof of idleness, the lease, the ladder, an engine, and its rounds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuops.collective.engines import Engine, Load
from gpuops.collective.engines.nccl.engine import NcclEngine, Options
from gpuops.collective.engines.nccl_tests.engine import NcclTestsEngine
from gpuops.collective.engines.tcp import TcpEngine
from gpuops.collective.expectations import Expectations
from gpuops.collective.idleness.lease import Lease
from gpuops.collective.idleness.monitor import IdleMonitor
from gpuops.collective.idleness.proof import Allocation
from gpuops.collective.network_tests.ladder import Ladder
from gpuops.collective.network_tests.rungs import NetworkFailure
from gpuops.collective.pool import Pool
from gpuops.collective.session import run
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.isolation import blame, next_round
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.node_evidence import all_reduce, excluded_answer, to_answers
from gpuops.isolation.rounds import Round, Scope
from gpuops.profile import Profile
from gpuops.reasons import Excluded

ENGINES = ("nccl", "nccl-tests", "tcp")
"""In the order in which ``auto`` tries them: the first that most nodes can run is taken."""
SCOPES: tuple[Scope, ...] = ("node", "rail", "pair", "group")
_TCP_SCOPES: tuple[Scope, ...] = ("rail", "group")  # a node's one network is its one rail


@dataclass(frozen=True)
class MeasureRequest:
    """What a user asks for. ``engine`` is one of `ENGINES`, or ``auto``; ``forced`` nodes are taken though busy.

    ``plan`` says what to measure next.
    """

    engine: str = "auto"
    scopes: tuple[Scope, ...] = SCOPES
    load: Load = field(default_factory=Load)
    forced: frozenset[str] = frozenset()
    interface: str = ""
    library: Path | None = None
    plan: Callable[[Evidence], Round | None] = next_round


@dataclass(frozen=True)
class Measurement:
    """What came of it. ``excluded`` are the nodes that took no part, or none from some round on.

    ``lost`` blames those of them that were gone in mid-round.
    ``settings`` is what may have changed the figures, by node in words; ``failures`` is what was wrong before the load.
    """

    evidence: Evidence
    engine: str
    why: str
    excluded: Mapping[str, Excluded]
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failures: Sequence[NetworkFailure] = ()
    lost: tuple[BlamedPart, ...] = ()
    expect: Expectations | None = None
    interrupted: bool = False

    @property
    def blame(self) -> Blame:
        """Who is at fault, by the evidence and by who was gone."""
        said = blame(self.evidence)
        return replace(said, blamed=(*self.lost, *said.blamed))


@dataclass(frozen=True)
class MeasureContext:
    """What is around the nodes: a scheduler that may be asked who has them, and the lease that it gives."""

    allocations: Callable[[Sequence[Host]], Mapping[str, Allocation]]
    lease: Lease
    slurm_job: str = ""
    tell: Callable[[str], None] = lambda _sentence: None
    step: Callable[[str], None] = lambda _rung: None
    watch: Callable[[Evidence, Round], None] = lambda _evidence, _planned: None

    def watch_over(
        self, pool: Pool, profiles: Mapping[str, Profile], forced: Collection[str], running: Sequence[Engine] = ()
    ) -> IdleMonitor:
        """The eye on ``pool``; ``forced`` nodes count as idle, and what is ``running`` makes nobody busy."""
        return IdleMonitor(
            pool,
            profiles,
            forced,
            self.slurm_job,
            pids=lambda: running[0].pids if running else {},
            jobs=lambda: running[0].jobs if running else (),
            allocations=self.allocations,
        )


def measure(
    pool: Pool, fabric: Fabric, profiles: Mapping[str, Profile], wish: MeasureRequest, around: MeasureContext
) -> Measurement:
    """Measure the nodes of ``pool`` that are proved idle, and put no load on the others.

    ``fabric`` is what is known of their NICs. If no node can be measured, the evidence is empty.
    """
    running: list[Engine] = []
    with idle_nodes(pool, profiles, wish, around, running) as watch:
        if not pool.hosts:
            return Measurement(
                Evidence(Fabric({}), scopes=wish.scopes), "none", "nobody is left to measure", pool.excluded
            )
        load = wish.load
        expect = Expectations(_of(pool, fabric), profiles, size_bytes=load.size_bytes, operation=load.operation)
        engine = choose(pool, expect, wish, around.tell)
        running.append(engine)
        try:
            failures = Ladder(
                pool,
                wish.interface,
                over_rdma=engine.name != "tcp",
                watch=lambda rung: around.step(f"before the load: {rung}"),
            ).climb()
            return replace(_measured(engine, pool, expect, wish, watch, around), failures=failures)
        finally:
            engine.close()


@contextlib.contextmanager
def idle_nodes(
    pool: Pool,
    profiles: Mapping[str, Profile],
    wish: MeasureRequest,
    around: MeasureContext,
    running: Sequence[Engine] = (),
) -> Iterator[IdleMonitor]:
    """Keep in ``pool`` the nodes that are proved idle, on lease meanwhile; what is ``running`` makes nobody busy."""
    watch = around.watch_over(pool, profiles, wish.forced, running)
    used = [reason for idleness in watch.prove().values() if (reason := idleness.excluded)]
    pool.exclude(replace(reason, why=f"skipped: {reason.why}") for reason in used)
    with around.lease as lease:
        refused = lease.take(list(pool.hosts.values()))
        pool.exclude(Excluded(name, "leased", f"skipped: {why}") for name, why in refused.items())
        yield watch


def _of(pool: Pool, fabric: Fabric) -> Fabric:
    return Fabric({name: fabric.nodes[name] for name in pool.hosts if name in fabric.nodes})


def choose(pool: Pool, expect: Expectations, wish: MeasureRequest, tell: Callable[[str], None]) -> Engine:
    """The engine asked for, opened; for ``auto`` the first that most nodes can run. The others are excluded."""
    names = ENGINES if wish.engine == "auto" else (wish.engine,)
    for name in names:
        engine = _make(name, pool, expect, wish)
        if engine.cost:
            tell(engine.cost)
        refused = engine.open()
        if name == names[-1] or 2 * len(refused) < len(pool.hosts):
            pool.exclude(refused.values())
            return engine
        engine.close()
        tell(f"not {name}: {_most_frequent([reason.why for reason in refused.values()])}")
    raise AssertionError("ENGINES is not empty")


def _most_frequent(reasons: Collection[str]) -> str:
    return max(reasons, key=list(reasons).count)


def _make(name: str, pool: Pool, expect: Expectations, wish: MeasureRequest) -> Engine:
    hosts, fabric = list(pool.hosts.values()), expect.fabric
    if name == "nccl":
        return NcclEngine(hosts, pool, fabric, wish.load, Options(library=wish.library))
    if name == "nccl-tests":
        return NcclTestsEngine(hosts, pool, fabric, wish.load, expect=expect.to_judge_by)
    return TcpEngine(hosts, pool, wish.load, interface=wish.interface)


def _measured(
    engine: Engine, pool: Pool, expect: Expectations, wish: MeasureRequest, watch: IdleMonitor, around: MeasureContext
) -> Measurement:
    tcp = isinstance(engine, TcpEngine)
    fabric = engine.fabric() if isinstance(engine, TcpEngine) else _of(pool, expect.fabric)
    scopes = tuple(scope for scope in wish.scopes if not tcp or scope in _TCP_SCOPES)
    result = run(
        engine,
        Evidence(fabric, scopes=scopes),
        plan=wish.plan,
        look=watch,
        expect=(lambda _group: None) if tcp else expect.to_judge_by,
        watch=around.watch,
    )
    return Measurement(
        result.evidence,
        engine.name,
        engine.why,
        {**pool.excluded, **result.excluded},
        {name: told for name, told in engine.settings.items() if name in result.evidence.fabric.nodes},
        lost=result.lost,
        expect=None if tcp else replace(expect, fabric=fabric),
        interrupted=result.interrupted,
    )


def with_evidence(facts_by_node: Mapping[str, Facts], measurement: Measurement) -> dict[str, Facts]:
    """The facts of all nodes with what the measurement shows of each, or why it took no part."""
    answers = {name: excluded_answer(reason) for name, reason in measurement.excluded.items()}
    answers |= to_answers(measurement.evidence, measurement.engine, measurement.settings)
    return {
        name: facts.with_answer(answers[name], all_reduce) if name in answers else facts
        for name, facts in facts_by_node.items()
    }
