"""Meeting: the interfaces of a job's nodes, and whether all of them reach the place where its ranks meet."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from gpuops.collective.network_tests.mesh import LOOK_SECONDS, Ask
from gpuops.collective.pool import Pool
from gpuops.collective.preflight import causes
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.launch_command import LaunchCommand

_PORTS_TRIED = 20


class Rendezvous:
    """The nodes of ``pool``, asked by ``ask`` (`mesh`), first of all for their interfaces."""

    def __init__(self, pool: Pool, command: LaunchCommand, ask: Ask) -> None:
        self._pool = pool
        self._command = command
        self._ask = ask
        told = ask({name: {"do": "interfaces", "address": host.address} for name, host in pool.hosts.items()})
        self._interfaces: dict[str, dict[str, str]] = {name: answer["interfaces"] for name, answer in told.items()}
        self._own: dict[str, str] = {name: answer["own"] for name, answer in told.items()}

    def interfaces(self, settings: Mapping[str, Mapping[str, str]]) -> Iterator[Cause]:
        """What is wrong with the interfaces that the job shall use, by the variables of each node."""
        return causes.interfaces(self._command, settings, self._interfaces, self._own)

    def place(self) -> Iterator[Cause]:
        """What is wrong with the place where the ranks meet; nothing, where the launcher alone knows it."""
        nodes = list(self._interfaces)
        wrong = list(causes.meeting(self._command, nodes))
        yield from wrong
        master = self._command.master
        if len(nodes) < 2 or wrong or master is None:
            return
        found = self._resolved(master)
        keeper = self._keeper(master, found)
        if keeper is None:
            yield self._cause((), f"{master} is none of the job's nodes", nodes[0])
            return
        lost = {node: why for node, (_, why) in found.items() if why and node != keeper}
        for node, why in lost.items():
            yield self._cause((node,), f"it cannot use the name {master}: {why}", keeper)
        yield from self._reached(
            master, keeper, {n: address for n, (address, _) in found.items() if n not in (keeper, *lost)}
        )

    def _resolved(self, master: str) -> dict[str, tuple[str, str]]:
        """By node the address that it takes ``master`` for, or why it finds none that leads to another machine."""
        told = self._ask(
            {node: {"do": "resolve", "names": [master], "seconds": LOOK_SECONDS} for node in self._interfaces}
        )
        found = {}
        for node, answer in told.items():
            entry = answer["names"][master]
            address = str(entry.get("addresses", [""])[0])
            itself = bool(address) and master != address and ipaddress.ip_address(address.partition("%")[0]).is_loopback
            found[node] = (
                address,
                f"it means {address}, the machine itself" if itself else str(entry.get("error", "")),
            )
        return found

    def _keeper(self, master: str, found: Mapping[str, tuple[str, str]]) -> str | None:
        """The node that ``master`` is, by its name or by an address of its own."""
        named = (node for node in self._interfaces if master in (node, self._pool.hosts[node].address))
        addresses = {address for address, why in found.values() if address and not why}
        return next(named, None) or next(
            (n for n, own in self._interfaces.items() if addresses & {*own.values()}), None
        )

    def _reached(self, master: str, keeper: str, addresses: Mapping[str, str]) -> Iterator[Cause]:
        """The port is free on the keeper, and the others reach it there."""
        port, token = self._command.port, secrets.token_hex(8)
        listening = self._listen(keeper, port, token)
        if "error" in listening:
            free = next(
                (p for p in range(port + 1, port + _PORTS_TRIED) if "error" not in self._listen(keeper, p, token)), 0
            )
            change = self._command.meet_at(master, free or port)
            yield Cause("meeting", (keeper,), f"port {port} cannot be had: {listening['error']}", change)
            return
        to = {node: {keeper: [address, port, token]} for node, address in addresses.items()}
        told = self._ask({node: {"do": "connect", "to": place, "seconds": LOOK_SECONDS} for node, place in to.items()})
        for node, answer in told.items():
            if answer["failed"]:
                why = f"it cannot connect to {addresses[node]}:{port}: {answer['failed'][keeper]}"
                yield Cause("meeting", (node,), why, f"open TCP port {port} on {keeper} for {node}: nft list ruleset")

    def _listen(self, keeper: str, port: int, token: str) -> dict[str, Any]:
        message = {"do": "listen", "anywhere": True, "address": "", "port": port, "token": token}
        return self._ask({keeper: message}).get(keeper, {"error": "it does not answer"})

    def _cause(self, nodes: tuple[str, ...], why: str, keeper: str) -> Cause:
        """A cause that naming the keeper by its address mends."""
        address = self._interfaces[keeper].get(self._own[keeper], keeper)
        return Cause("meeting", nodes, why, self._command.meet_at(address, self._command.port))
