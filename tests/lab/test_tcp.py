"""The tcp engine over the lab's hosts: real SSH, a worker beside the agent on one connection."""

from dataclasses import replace

import pytest

from gpuops.collective.engines import Load
from gpuops.collective.engines.tcp import TcpEngine
from gpuops.inventory import Inventory
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.shell import Command
from gpuops.transport.connections import Connector


@pytest.fixture
def ways(lab):
    """Opens one way to each host, and hangs up at the end."""
    reach, opened = Connector(), {}

    def way(host):
        if host.name not in opened:
            opened[host.name] = reach(host)
        return opened[host.name]

    yield way
    for transport in opened.values():
        transport.close()


@pytest.mark.parametrize("connection", ["ssh", "openssh"])
def test_a_ring_runs_beside_the_agent_on_one_connection(lab, ways, connection):
    inventory = Inventory.load(lab.folder / "inventory.yml")
    hosts = [replace(host, connection=connection) for host in inventory.hosts.values()]
    engine = TcpEngine(hosts, ways, Load(seconds=0.1))
    assert engine.open() == {}
    (figure,) = engine.measure(Round("group", (RankGroup(tuple(host.name for host in hosts)),)))
    assert figure.gb_per_s, figure
    assert ways(hosts[0]).run(Command(("echo", "hi"))).out == "hi\n"
    engine.close()
    assert ways(hosts[0]).run(Command(("echo", "still here"))).out == "still here\n"
