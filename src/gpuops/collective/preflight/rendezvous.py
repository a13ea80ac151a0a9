"""The interfaces of a job's nodes, and whether all nodes reach the rendezvous of its ranks."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gpuops.collective.network_tests.mesh import LOOK_SECONDS, Ask
from gpuops.collective.pool import Pool
from gpuops.collective.preflight import causes
from gpuops.collective.preflight.causes import EACH, Cause
from gpuops.collective.preflight.launch_command import LaunchCommand

_PORTS_TRIED = 20


class Rendezvous:
    """The nodes of ``pool``, queried through ``ask`` (`mesh`), first for their interfaces."""

    def __init__(self, pool: Pool, command: LaunchCommand, ask: Ask) -> None:
        self._pool = pool
        self._command = command
        self._ask = ask
        answers = ask({name: {"do": "interfaces", "address": host.address} for name, host in pool.hosts.items()})
        self._interfaces: dict[str, dict[str, str]] = {name: answer["interfaces"] for name, answer in answers.items()}
        self._own: dict[str, str] = {name: answer["own"] for name, answer in answers.items()}

    def interfaces(self, settings: Mapping[str, Mapping[str, str]]) -> Iterator[Cause]:
        """Return what is wrong with the interfaces that the job is to use, by the variables of each node."""
        return causes.interfaces(self._command, settings, self._interfaces, self._own)

    def place(self) -> Iterator[Cause]:
        """Return what is wrong with the rendezvous; nothing if only the launcher knows it."""
        nodes = list(self._interfaces)
        wrong = causes.rendezvous(self._command, nodes)
        if wrong and not self._is_on_one_machine():
            yield self._cause((), wrong, nodes[0])
            return
        master = self._command.master
        if len(nodes) < 2 or master is None:
            return
        resolved = self._resolved(master)
        rendezvous_host = self._rendezvous_host(master, resolved)
        if rendezvous_host is None:
            yield self._cause((), f"{master} is not one of the job's nodes", nodes[0])
            return
        lost = {node: why for node, (_, why) in resolved.items() if why and node != rendezvous_host}
        for node, why in lost.items():
            yield self._cause((node,), f"cannot use the name {master}: {why}", rendezvous_host)
        addresses = {n: address for n, (address, _) in resolved.items() if n not in (rendezvous_host, *lost)}
        yield from self._reached(master, rendezvous_host, addresses)

    def _is_on_one_machine(self) -> bool:
        """Return True if ssh reaches all nodes at the loopback address of the rendezvous: they may be one machine."""
        places = {host.address for host in self._pool.hosts.values()}
        return places == {self._command.master or ""} and "127.0.0.1" in places

    def _resolved(self, master: str) -> dict[str, tuple[str, str]]:
        """Return the address to which each node resolves ``master``, or why it leads to no other machine."""
        message = {"do": "resolve", "names": [master], "seconds": LOOK_SECONDS}
        resolved = {}
        for node, answer in self._ask(dict.fromkeys(self._interfaces, message)).items():
            entry = answer["names"][master]
            address = str(entry.get("addresses", [""])[0])
            itself = bool(address) and master != address and _is_loopback(address)
            why = f"it resolves to {address}, the machine itself" if itself else str(entry.get("error", ""))
            resolved[node] = address, why
        return resolved

    def _rendezvous_host(self, master: str, resolved: Mapping[str, tuple[str, str]]) -> str | None:
        """Return the node that ``master`` means, by its name or by one of its addresses."""
        named = (node for node in self._interfaces if master in (node, self._pool.hosts[node].address))
        addresses = {address for address, why in resolved.values() if address and not why}
        return next(named, None) or next(
            (n for n, own in self._interfaces.items() if addresses & {*own.values()}), None
        )

    def _reached(self, master: str, rendezvous_host: str, addresses: Mapping[str, str]) -> Iterator[Cause]:
        """Check that the port is free on the rendezvous host and that the other nodes reach it."""
        port, token = self._command.port, secrets.token_hex(8)
        listening = self._listen(rendezvous_host, port, token)
        if "error" in listening:
            others = range(port + 1, port + _PORTS_TRIED)
            free = next((p for p in others if "error" not in self._listen(rendezvous_host, p, token)), 0)
            fix = self._command.with_rendezvous(master, free) if free else f"free TCP port {port}: ss -ltnp"
            yield Cause("meeting", (rendezvous_host,), f"cannot listen on port {port}: {listening['error']}", fix)
            return
        to = {node: {rendezvous_host: [address, port, token]} for node, address in addresses.items()}
        messages = {node: {"do": "connect", "to": place, "seconds": LOOK_SECONDS} for node, place in to.items()}
        for node, answer in self._ask(messages).items():
            if not answer["failed"]:
                continue
            if _is_loopback(addresses[node]):
                why = f"{master} means each node itself, so the nodes cannot find each other"
                yield self._cause((node,), why, rendezvous_host)
            else:
                why = f"cannot connect to {addresses[node]}:{port}: {answer['failed'][rendezvous_host]}"
                fix = f"open TCP port {port} on {rendezvous_host} for {EACH}: nft list ruleset"
                yield Cause("meeting", (node,), why, fix)

    def _listen(self, node: str, port: int, token: str) -> dict[str, Any]:
        message = {"do": "listen", "anywhere": True, "address": "", "port": port, "token": token}
        return self._ask({node: message}).get(node, {"error": "no answer"})

    def _cause(self, nodes: tuple[str, ...], why: str, rendezvous_host: str) -> Cause:
        """Return a cause whose fix names the rendezvous host by an address that the other nodes reach."""
        place = self._place_of(rendezvous_host)
        fix = (
            self._command.with_rendezvous(place, self._command.port)
            if place
            else f"name an address of {rendezvous_host} that the other nodes reach: it has only that of loopback"
        )
        return Cause("meeting", nodes, why, fix)

    def _place_of(self, node: str) -> str:
        """Return the name of ``node`` if the others resolve it, else its address; empty if it has only loopback's."""
        others = [name for name in self._interfaces if name != node]
        interfaces = self._interfaces[node]
        own = [interfaces[self._own[node]]] if self._own[node] in interfaces else []
        own += interfaces.values()
        usable = [address for address in own if not _is_loopback(address)]
        resolved = self._resolved(node)
        if all(other in resolved and _is_at(resolved[other], usable) for other in others) or not own:
            return node
        shared = {address for name in others for address in self._interfaces[name].values()}  # of a bridge, say
        return next((address for address in usable if address not in shared), next(iter(usable), ""))


def _is_at(resolved: tuple[str, str], addresses: Collection[str]) -> bool:
    """Return True if a name was resolved to one of ``addresses``."""
    address, why = resolved
    return not why and address in addresses


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
