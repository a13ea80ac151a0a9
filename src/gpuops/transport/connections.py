"""Reach: picks the way in to a host and opens it; knows every open way, so that Ctrl-C can hang up."""

from __future__ import annotations

import threading
import weakref
from dataclasses import replace
from typing import Any

from gpuops.inventory import Host
from gpuops.transport.agent import AgentTransport
from gpuops.transport.local import open_local
from gpuops.transport.openssh import open_openssh
from gpuops.transport.settings import Settings, resolve
from gpuops.transport.ssh import NodeConnection, SshTransport

_open: weakref.WeakSet[AgentTransport] = weakref.WeakSet()
_gateways: dict[tuple[Settings, ...], NodeConnection] = {}
_lock = threading.Lock()


class Connector:
    """Opens hosts. ``said`` gathers what a user should hear once (why the system's ssh was taken, broken lines)."""

    def __init__(self, connect_seconds: float = 10.0) -> None:
        self.connect_seconds = connect_seconds
        self.said: dict[str, None] = {}

    def __call__(self, host: Host) -> AgentTransport:
        """A transport to ``host``, not yet connected; `gpuops.errors.NodeError` comes from its first use."""
        transport = self._choose(host)
        with _lock:
            _open.add(transport)
        return transport

    def _choose(self, host: Host) -> AgentTransport:
        if host.connection == "local":
            return open_local(host)
        settings = resolve(host, connect_seconds=self.connect_seconds)
        hops = hops_to(host, settings)
        reason = next(filter(None, map(_needs_openssh, (settings, *hops))), "")
        if host.connection == "openssh" or reason:
            if reason:
                self._say(f"using the system's ssh, because the configuration has {reason}")
            return open_openssh(host, settings)
        for warning in settings.known_hosts.warnings:
            self._say(warning)
        return SshTransport(host, NodeConnection(host.name, settings, gateway_through(hops)))

    def _say(self, sentence: str) -> None:
        self.said.setdefault(sentence)


def _needs_openssh(settings: Settings) -> str:
    if settings.needs_openssh:
        return settings.needs_openssh
    unknown = not settings.known_hosts.keys(settings.known_name)
    return "@cert-authority in known_hosts" if unknown and settings.known_hosts.has_authorities else ""


def hops_to(host: Host, settings: Settings) -> tuple[Settings, ...]:
    """The jump hosts on the way to ``host`` (``user@host:port,next``), each under the same rules as a node."""
    return tuple(_hop(host, settings, place.strip()) for place in settings.jump.split(",") if place.strip())


def _hop(host: Host, settings: Settings, place: str) -> Settings:
    user, _, place = place.rpartition("@")
    name, port = _split_port(place)
    arguments = tuple(_own_arguments(host))
    via = Host(name, name, host.origin, port=port, user=user or None, key_file=host.key_file, ssh_args=arguments)
    found = resolve(via, connect_seconds=settings.connect_seconds)
    return replace(found, needs_openssh=found.needs_openssh or ("a jump host behind another" if found.jump else ""))


def gateway_through(hops: tuple[Settings, ...]) -> NodeConnection | None:
    """The connection to the last of ``hops``, shared by all nodes behind it; each is reached through the one before."""
    if not hops:
        return None
    before = gateway_through(hops[:-1])
    with _lock:
        if hops not in _gateways:
            _gateways[hops] = NodeConnection(hops[-1].address, hops[-1], before)
        return _gateways[hops]


def _own_arguments(host: Host) -> list[str]:
    """The host's ssh options that hold for its jump hosts too: where host keys are recorded."""
    return [w if w.startswith("-o") else f"-o{w}" for w in host.ssh_args if "knownhostsfile" in w.lower()]


def _split_port(place: str) -> tuple[str, int | None]:
    name, colon, port = place.rpartition(":")
    if colon and port.isdigit() and (":" not in name or name.endswith("]")):
        return name.strip("[]"), int(port)
    return place.strip("[]"), None


def hang_up() -> None:
    """Close every open transport; each node ends what it runs for us."""
    with _lock:
        ways: list[Any] = [*_open, *_gateways.values()]
        _gateways.clear()
    for way in ways:
        way.close()
