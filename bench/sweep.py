"""Measure the overhead of a rail sweep: nccl-tests on a lab of 64 nodes, with the loop of a real session.

    python bench/sweep.py [--nodes 64]

Each round measures 8 rails of every pair at once. Each rail has its own program, which runs as long as its iterations
would on real hardware. The rest is the overhead of gpuops: planning, a snapshot of every node before and after each
round, starting 256 programs over SSH and parsing their output. The lab runs on the same cores.
"""

import argparse
import pathlib
import tempfile
import time

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl_tests.engine import NcclTestsEngine
from gpuops.collective.idleness.monitor import IdleMonitor
from gpuops.collective.pool import Pool
from gpuops.collective.session import run
from gpuops.inventory import Inventory
from gpuops.isolation import next_round
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.lab import cluster
from gpuops.lab.collective.running import START_SECONDS
from gpuops.transport.connections import Connections

LOAD = Load(size_bytes=1 << 30)
RAILS = range(8)


def fabric_of(hosts):
    nics = tuple(FabricNic(f"mlx5_{rail}", rail, 50.0) for rail in RAILS)
    return Fabric({host.name: FabricNode(host.name, tuple(RAILS), nics) for host in hosts})


def measuring_seconds(measured):
    """How long the slowest program of a round ran: its start, then both series of iterations."""
    slowest = min(figure.gb_per_s for figure in measured.figures)
    return START_SECONDS + 2 * (LOAD.warmups + LOAD.iterations) * LOAD.size_bytes / slowest / 1e9


def sweep(hosts):
    """The evidence of a whole rail sweep, the seconds from the first plan to the last, and those of our own CPU."""
    pool = Pool(hosts, Connections())
    engine = NcclTestsEngine(hosts, pool, fabric_of(hosts), LOAD)
    try:
        refused = engine.open()
        assert not refused, refused
        monitor = IdleMonitor(pool, profiles={})
        monitor(list(pool.hosts))  # every node is proved idle before, and the lab works out what it answers
        began, cpu = time.monotonic(), time.process_time()
        result = run(engine, Evidence(fabric_of(hosts), scopes=("rail",)), plan=next_round, monitor=monitor,
                     threshold_for=lambda _group: None)  # fmt: skip
        return result, time.monotonic() - began, time.process_time() - cpu
    finally:
        engine.close()
        pool.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        place.chmod(0o755)
        lab = place / ".gpuops" / "lab"
        cluster.up(lab, "hgx-h100", options.nodes, [])
        try:
            result, wall, cpu = sweep(list(Inventory.load(lab / "inventory.yml").hosts.values()))
        finally:
            cluster.down(lab)
    assert not result.excluded, result.excluded
    rounds = [measuring_seconds(measured) for measured in result.evidence.rounds]
    groups = sum(len(measured.figures) for measured in result.evidence.rounds)
    print(f"{options.nodes} nodes, {len(rounds)} rounds, {groups} programs: {wall:.1f} s, own CPU {cpu:.1f} s;")
    print(f"the programs of the rounds ran {sum(rounds):.1f} s: {wall / sum(rounds):.2f} times")


if __name__ == "__main__":
    main()
