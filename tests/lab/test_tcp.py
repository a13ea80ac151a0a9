"""The tcp engine on the lab's hosts: real SSH, with a worker beside the agent on one connection."""

from dataclasses import replace

import pytest

from gpuops.collective.engines import Load
from gpuops.collective.engines.tcp import TcpEngine
from gpuops.collective.pool import Pool
from gpuops.inventory import Inventory
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.shell import Command


@pytest.mark.parametrize("connection", ["ssh", "openssh"])
def test_a_ring_runs_beside_the_agent_on_one_connection(lab, connections, connection):
    inventory = Inventory.load(lab.folder / "inventory.yml")
    hosts = [replace(host, connection=connection) for host in inventory.hosts.values()]
    pool = Pool(hosts, connections)
    engine = TcpEngine(hosts, pool, Load(seconds=0.1))
    assert engine.open() == {}
    (figure,) = engine.measure(Round("group", (RankGroup(tuple(host.name for host in hosts)),)))
    assert figure.gb_per_s, figure
    assert pool.open(hosts[0]).run(Command(("echo", "hi"))).out == "hi\n"
    engine.close()
    assert pool.open(hosts[0]).run(Command(("echo", "still here"))).out == "still here\n"
