"""The network tests before the load, cheapest first; nodes that fail are excluded and the rest goes on."""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gpuops.collective.network_tests import perftest, verdicts
from gpuops.collective.network_tests.mesh import LOOK_SECONDS, Answers, Ask, mesh
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.collective.pool import Pool
from gpuops.facts import Facts
from gpuops.probes.host.limits import limits
from gpuops.probes.network.gids import gids
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probing import Unknown

_PROBES = (limits, ib_ports, gids)
_NAMES = 16
"""With more peers than this, each node resolves only some of their names."""


@dataclass
class Ladder:
    """The network tests of one pool. ``interface`` is the one that peers must use, if it is not that of SSH.

    ``over_rdma`` False omits the tests that only RDMA needs, ``writes`` False omits ib_write_bw. ``on_test`` is called
    with the name of each test before it runs. ``failures`` grows in the meantime.
    """

    pool: Pool
    interface: str = ""
    over_rdma: bool = True
    writes: bool = True
    on_test: Callable[[str], None] = lambda _name: None
    failures: list[NetworkFailure] = field(default_factory=list)
    _places: Answers = field(default_factory=dict)

    def run(self) -> list[NetworkFailure]:
        """Run every test and return the failures; nodes that cannot take part are excluded from the pool."""
        with mesh(self.pool) as ask:
            for test in (self._names, self._clocks, self._connections, self._packets):
                self.on_test(test.__name__.strip("_"))
                self._fail(test(ask))
        if self.over_rdma:
            self._run_rdma()
        return self.failures

    def _fail(self, failures: Iterable[NetworkFailure]) -> None:
        new = list(failures)
        self.failures += new
        self.pool.exclude(verdicts.exclusions(new, list(self.pool.hosts)).values())

    def _names(self, ask: Ask) -> Iterable[NetworkFailure]:
        names = {name: host.address for name, host in self.pool.hosts.items() if not _is_literal(host.address)}
        if not names:
            return ()
        partners = verdicts.partners(list(self.pool.hosts), _NAMES)
        lookups = {node: [names[peer] for peer in (node, *peers) if peer in names] for node, peers in partners.items()}
        answers = ask({n: {"do": "resolve", "names": lookups[n], "seconds": LOOK_SECONDS} for n in self.pool.hosts})
        owners = {address: node for node, address in names.items()}
        return verdicts.names({node: answer["names"] for node, answer in answers.items()}, owners)

    def _clocks(self, ask: Ask) -> Iterable[NetworkFailure]:
        """Test the clocks; nodes send the time when they begin to listen."""
        began = time.monotonic()
        listen = {"do": "listen", "interface": self.interface}
        tokens = {name: secrets.token_hex(8) for name in self.pool.hosts}
        answers = ask({n: {**listen, "token": tokens[n], "address": h.address} for n, h in self.pool.hosts.items()})
        uncertainty = time.monotonic() - began
        deaf = [name for name, answer in answers.items() if "error" in answer]
        fix = "set its interface: --interface INTERFACE"
        self._fail(NetworkFailure("tcp", (name,), answers[name]["error"], fix) for name in deaf)
        self._places = {name: {**answers[name], "token": tokens[name]} for name in answers if name not in deaf}
        times = {name: place["unix_seconds"] for name, place in self._places.items()}
        return verdicts.clocks(times, uncertainty, time.time())

    def _to(self, peers: Iterable[str], port: str) -> dict[str, list[Any]]:
        places = {peer: self._places[peer] for peer in peers}
        return {peer: [place["address"], place[port], place["token"]] for peer, place in places.items()}

    def _connections(self, ask: Ask) -> Iterable[NetworkFailure]:
        partners = verdicts.partners(list(self.pool.hosts))
        to = {node: self._to(partners[node], "port") for node in self.pool.hosts}
        answers = ask({node: {"do": "connect", "to": to[node], "seconds": LOOK_SECONDS} for node in to})
        tried = [(node, peer) for node in answers for peer in partners[node] if peer in answers]
        failed = {node: answer["failed"] for node, answer in answers.items()}
        return verdicts.connections({(n, p): failed[n][p] for n, p in tried if p in failed[n]}, tried)

    def _packets(self, ask: Ask) -> Iterable[NetworkFailure]:
        partners = {node: peers[:2] for node, peers in verdicts.partners(list(self.pool.hosts)).items()}
        answers = ask({n: {"do": "packets", "to": self._to(partners[n], "datagrams")} for n in self.pool.hosts})
        return verdicts.packets({(n, p): a for n, answer in answers.items() for p, a in answer["packets"].items()})

    def _run_rdma(self) -> None:
        self.on_test("rdma")
        facts = self.pool.facts(_PROBES)
        rails = {name: self._rails(name, own) for name, own in facts.items()}
        self._fail(verdicts.rdma(self.pool.hosts, facts))
        self._fail(verdicts.memory({name: own for name, own in facts.items() if rails[name]}))
        if self.writes:
            self.on_test("ib_write_bw")
            devices = {name: list(rates) for name, rates in rails.items() if name in self.pool.hosts}
            lines = {(name, device): gbps for name, rates in rails.items() for device, gbps in rates.items()}
            measured = perftest.measure_write_bandwidth(self.pool, devices, self._address)
            self._fail(verdicts.rails(measured, lines))

    def _rails(self, node: str, facts: Facts) -> dict[str, float]:
        """Return the rates in Gbit/s of a node's active ports, only of the declared ones if the inventory has any."""
        value, declared = facts[ib_ports], self.pool.hosts[node].fabric
        ports: tuple[IbPort, ...] = () if isinstance(value, Unknown) else value
        up = (port for port in ports if port.state == "Active" and (not declared or port.device in declared))
        return {port.device: port.rate_gbps for port in up if port.rate_gbps}

    def _address(self, node: str) -> str:
        """Return the address of a node for its peers: its name if its address is loopback."""
        address = str(self._places[node]["address"])
        return node if ipaddress.ip_address(address.partition("%")[0]).is_loopback else address


def _is_literal(address: str) -> bool:
    try:
        ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return True
