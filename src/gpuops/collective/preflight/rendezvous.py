"""The interfaces of a job's nodes, and whether all nodes reach the rendezvous of its ranks."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gpuops.collective.network_tests.mesh import LOOK_SECONDS, Ask
from gpuops.collective.pool import Pool
from gpuops.collective.preflight import causes, firewall
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.launch_command import LaunchCommand

_PORTS_TRIED = 20
NO_ROUTE = frozenset({"Network is unreachable", "No route to host"})
"""The errors of a connection for which a node has no route, ENETUNREACH and EHOSTUNREACH, as the kernel calls them."""


class Rendezvous:
    """The nodes of ``pool``, queried through ``ask`` (`mesh`), first for their interfaces.

    ``chains`` are those of each node's firewall.
    """

    def __init__(
        self, pool: Pool, command: LaunchCommand, ask: Ask, chains: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._pool = pool
        self._chains = chains or {}
        self._command = command
        self._ask = ask
        answers = ask({name: {"do": "interfaces", "address": host.address} for name, host in pool.hosts.items()})
        self._answers = answers
        self._interfaces: dict[str, dict[str, str]] = {name: answer["interfaces"] for name, answer in answers.items()}
        self._own: dict[str, str] = {name: answer["own"] for name, answer in answers.items()}

    def interfaces(self, settings: Mapping[str, Mapping[str, str]]) -> Iterator[Cause]:
        """Return what is wrong with the interfaces that the job is to use, by the variables of each node."""
        down = {name: answer.get("down", ()) for name, answer in self._answers.items()}
        yield from causes.interfaces(self._command, settings, self._interfaces, self._own, down)
        named = {name: answer for name, answer in self._answers.items() if answer.get("host_name")}
        names = {name: (answer["host_name"], answer["host_addresses"]) for name, answer in named.items()}
        yield from causes.host_names(self._command, settings, names, self._own)

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
        addresses = {n: address for n, (address, why) in resolved.items() if n not in lost and not why}
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
            itself = bool(address) and master != address and causes.is_loopback(address)
            why = f"it resolves to {address}, the machine itself" if itself else str(entry.get("error", ""))
            resolved[node] = address, why
        return resolved

    def _rendezvous_host(self, master: str, resolved: Mapping[str, tuple[str, str]]) -> str | None:
        """Return the node that ``master`` means, by its name or by one of its addresses."""
        named = (node for node in self._interfaces if master in (node, self._pool.hosts[node].address))
        addresses = {address for address, why in resolved.values() if address and not why}
        own = {n: {*self._interfaces[n].values(), *answer.get("local", ())} for n, answer in self._answers.items()}
        return next(named, None) or next((node for node in self._interfaces if addresses & own[node]), None)

    def _reached(self, master: str, rendezvous_host: str, addresses: Mapping[str, str]) -> Iterator[Cause]:
        """Check that the port is free on the rendezvous host, and that all nodes reach it, also that host itself."""
        port, token = self._command.port, secrets.token_hex(8)
        listening = self._listen(rendezvous_host, port, token)
        if "error" in listening:
            others = range(port + 1, port + _PORTS_TRIED)
            free = next((p for p in others if "error" not in self._listen(rendezvous_host, p, token)), 0)
            fix = self._command.with_rendezvous(master, free) if free else f"free TCP port {port}: ss -ltnp"
            by = f": {listening['by']} listens there" if listening.get("by") else ""
            yield Cause("meeting", (rendezvous_host,), f"cannot listen on port {port}: {listening['error']}{by}", fix)
            return
        failed = self._failed({node: (address, port, token) for node, address in addresses.items()}, rendezvous_host)
        usual = self.addresses.get(rendezvous_host, "")
        still = failed
        if usual and usual not in addresses.values():
            still = self._failed(dict.fromkeys(failed, (usual, port, token)), rendezvous_host)
        groups: dict[tuple[str, str, bool], list[str]] = {}
        for node, why in failed.items():
            groups.setdefault((addresses[node], why, node in still), []).append(node)
        for (address, why, is_closed), nodes in groups.items():
            cannot = f"cannot connect to {address}:{port}: {why}"
            if causes.is_loopback(address):
                itself = f"{master} means each node itself, so the nodes cannot find each other"
                yield self._cause(tuple(nodes), itself, rendezvous_host)
            elif not is_closed:
                yield self._cause(tuple(nodes), cannot, rendezvous_host)
            else:
                yield Cause("meeting", tuple(nodes), cannot, self._opening(nodes, rendezvous_host, address, why))

    def _opening(self, nodes: Sequence[str], rendezvous_host: str, address: str, why: str) -> str:
        """Return how to let ``nodes`` connect to the rendezvous, by the reason ``why`` they cannot."""
        if why in NO_ROUTE:
            return route_to(address, nodes[0], rendezvous_host)
        port, sources = self._command.port, [self.addresses[node] for node in nodes if node in self.addresses]
        rule = firewall.opening(self._chains.get(rendezvous_host, ()), sources, rendezvous_host, port)
        return rule or f"open TCP port {port} on {rendezvous_host} for {', '.join(nodes)}: nft list ruleset"

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each node that its peers use."""
        return {n: own[self._own[n]] for n, own in self._interfaces.items() if self._own[n] in own}

    def _failed(self, places: Mapping[str, tuple[str, int, str]], rendezvous_host: str) -> dict[str, str]:
        """Return the nodes that cannot connect to their address, port and token of the rendezvous host, and why."""
        messages = {
            node: {"do": "connect", "to": {rendezvous_host: list(place)}, "seconds": LOOK_SECONDS}
            for node, place in places.items()
        }
        answers = self._ask(messages) if messages else {}
        return {node: answer["failed"][rendezvous_host] for node, answer in answers.items() if answer["failed"]}

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
        usable = [address for address in own if not causes.is_loopback(address)]
        resolved = self._resolved(node)
        if all(other in resolved and _is_at(resolved[other], usable) for other in others) or not own:
            return node
        shared = {address for name in others for address in self._interfaces[name].values()}  # of a bridge, say
        return next((address for address in usable if address not in shared), next(iter(usable), ""))


def route_to(address: str, node: str, to: str) -> str:
    """Return what to do if ``node`` has no route to ``address`` of ``to``."""
    return f"ip route get {address}   on {node}; then correct that route, or the firewall of {to}"


def _is_at(resolved: tuple[str, str], addresses: Collection[str]) -> bool:
    """Return True if a name was resolved to one of ``addresses``."""
    address, why = resolved
    return not why and address in addresses
