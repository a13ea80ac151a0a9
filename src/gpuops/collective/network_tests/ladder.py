"""Ladder: what must hold before the load, the cheapest first; nodes that fail leave the pool, and the rest goes on."""

from __future__ import annotations

import ipaddress
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gpuops.collective.network_tests import perftest, rungs
from gpuops.collective.network_tests.mesh import LOOK_SECONDS, Answers, Ask, mesh
from gpuops.collective.network_tests.rungs import NetworkFailure
from gpuops.collective.pool import Pool
from gpuops.facts import Facts
from gpuops.probes.host.limits import limits
from gpuops.probes.network.gids import gids
from gpuops.probes.network.ib import IbPort, ib_ports
from gpuops.probing import Unknown

_ASKED = (limits, ib_ports, gids)
_NAMES = 16
"""Of more peers than this each node looks up the names of some."""


@dataclass
class Ladder:
    """The climb of one pool. ``interface`` is the one that peers shall use, if not the one of SSH.

    ``over_rdma`` False leaves out what only RDMA needs, ``writes`` False ib_write_bw. ``watch`` hears of each rung
    before it is tried. ``failures`` grows as it goes.
    """

    pool: Pool
    interface: str = ""
    over_rdma: bool = True
    writes: bool = True
    watch: Callable[[str], None] = lambda _rung: None
    failures: list[NetworkFailure] = field(default_factory=list)
    _places: Answers = field(default_factory=dict)

    def climb(self) -> list[NetworkFailure]:
        """Try every rung. What failed; the nodes that stood in the way have left the pool."""
        with mesh(self.pool) as ask:
            for rung in (self._names, self._clocks, self._connections, self._packets):
                self.watch(rung.__name__.strip("_"))
                self._fail(rung(ask))
        if self.over_rdma:
            self._climb_rdma()
        return self.failures

    def _fail(self, failures: Iterable[NetworkFailure]) -> None:
        found = list(failures)
        self.failures += found
        self.pool.exclude(rungs.leaving(found, list(self.pool.hosts)).values())

    def _names(self, ask: Ask) -> Iterable[NetworkFailure]:
        names = {name: host.address for name, host in self.pool.hosts.items() if not _is_literal(host.address)}
        if not names:
            return ()
        around = rungs.partners(list(self.pool.hosts), _NAMES)
        wanted = {node: [names[peer] for peer in (node, *peers) if peer in names] for node, peers in around.items()}
        told = ask({n: {"do": "resolve", "names": wanted[n], "seconds": LOOK_SECONDS} for n in self.pool.hosts})
        owners = {address: node for node, address in names.items()}
        return rungs.names({node: answer["names"] for node, answer in told.items()}, owners)

    def _clocks(self, ask: Ask) -> Iterable[NetworkFailure]:
        """Nodes tell the time when they begin to listen."""
        began = time.monotonic()
        listen = {"do": "listen", "interface": self.interface}
        tokens = {name: secrets.token_hex(8) for name in self.pool.hosts}
        told = ask({n: {**listen, "token": tokens[n], "address": h.address} for n, h in self.pool.hosts.items()})
        doubt = time.monotonic() - began
        deaf = [name for name, answer in told.items() if "error" in answer]
        self._fail(
            NetworkFailure("tcp", (name,), told[name]["error"], "name its interface: --interface IF") for name in deaf
        )
        self._places = {name: {**told[name], "token": tokens[name]} for name in told if name not in deaf}
        return rungs.clocks({name: place["unix_seconds"] for name, place in self._places.items()}, doubt)

    def _to(self, peers: Iterable[str], port: str) -> dict[str, list[Any]]:
        places = {peer: self._places[peer] for peer in peers}
        return {peer: [place["address"], place[port], place["token"]] for peer, place in places.items()}

    def _connections(self, ask: Ask) -> Iterable[NetworkFailure]:
        around = rungs.partners(list(self.pool.hosts))
        to = {node: self._to(around[node], "port") for node in self.pool.hosts}
        told = ask({node: {"do": "connect", "to": to[node], "seconds": LOOK_SECONDS} for node in to})
        tried = [(node, peer) for node in told for peer in around[node] if peer in told]
        return rungs.connections({(n, p): told[n]["failed"][p] for n, p in tried if p in told[n]["failed"]}, tried)

    def _packets(self, ask: Ask) -> Iterable[NetworkFailure]:
        around = {node: peers[:2] for node, peers in rungs.partners(list(self.pool.hosts)).items()}
        told = ask({n: {"do": "packets", "to": self._to(around[n], "datagrams")} for n in self.pool.hosts})
        return rungs.packets({(n, p): a for n, answer in told.items() for p, a in answer["packets"].items()})

    def _climb_rdma(self) -> None:
        self.watch("rdma")
        facts = self.pool.facts(_ASKED)
        rails = {name: self._rails(name, told) for name, told in facts.items()}
        self._fail(rungs.rdma(self.pool.hosts, facts))
        self._fail(rungs.memory({name: told for name, told in facts.items() if rails[name]}))
        if self.writes:
            self.watch("ib_write_bw")
            devices = {name: list(found) for name, found in rails.items() if name in self.pool.hosts}
            lines = {(name, device): gbps for name, found in rails.items() for device, gbps in found.items()}
            self._fail(rungs.rails(perftest.write(self.pool, devices, self._address), lines))

    def _rails(self, node: str, facts: Facts) -> dict[str, float]:
        """The rates in Gbit/s of a node's active ports, of the declared ones where the inventory declares any."""
        told, declared = facts[ib_ports], self.pool.hosts[node].fabric
        ports: tuple[IbPort, ...] = () if isinstance(told, Unknown) else told
        up = (port for port in ports if port.state == "Active" and (not declared or port.device in declared))
        return {port.device: port.rate_gbps for port in up if port.rate_gbps}

    def _address(self, node: str) -> str:
        """Where peers reach a node: by name, where its address means the machine itself."""
        address = str(self._places[node]["address"])
        return node if ipaddress.ip_address(address.partition("%")[0]).is_loopback else address


def _is_literal(address: str) -> bool:
    try:
        ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return True
