"""One all-reduce over all nodes of a pool at once, by the first engine that every node can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gpuops.collective.engines import Engine, Load
from gpuops.collective.engines.nccl.engine import NcclEngine, Options
from gpuops.collective.engines.nccl_tests.engine import NcclTestsEngine
from gpuops.collective.engines.tcp import TcpEngine
from gpuops.collective.fabrics import NEEDS, fabric_of
from gpuops.collective.pool import Pool
from gpuops.isolation.rounds import GroupResult, RankGroup, Round

_LOAD = Load(size_bytes=1 << 28, iterations=5, warmups=2)
"""Enough to show that it runs; nothing is judged by it."""


def all_reduce(pool: Pool, environment: Mapping[str, str], note: Callable[[str], None]) -> tuple[GroupResult, str]:
    """Return the result and the engine's name. ``environment`` sets NCCL's variables; ``note`` receives refusals."""
    nodes = tuple(pool.hosts)
    for engine in _engines(pool, environment):
        try:
            refused = engine.open()
            if not refused or engine.name == "tcp":
                planned = Round("group" if len(nodes) > 1 else "node", (RankGroup(nodes),), "all nodes of the job")
                return engine.measure(planned)[0], engine.name
        finally:
            engine.close()
        first = next(iter(refused.values()))
        note(f"engine {engine.name} cannot run on {first.host}: {first.why}")
    raise AssertionError("tcp is the last resort")


def _engines(pool: Pool, environment: Mapping[str, str]) -> Iterator[Engine]:
    """Yield the NCCL engines if every node has GPUs, then the one that needs none."""
    hosts = list(pool.hosts.values())
    facts = pool.facts(NEEDS)
    fabric = fabric_of([host for host in hosts if host.name in facts], facts)
    if all(host.name in fabric.nodes for host in hosts):
        variables = {name: value for name, value in environment.items() if name.startswith("NCCL_")}
        yield NcclEngine(hosts, pool, fabric, _LOAD, Options(environment=variables))
        yield NcclTestsEngine(hosts, pool, fabric, _LOAD)
    yield TcpEngine(hosts, pool)
