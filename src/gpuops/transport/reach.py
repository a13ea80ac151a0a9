"""Reach: picks the way in to a host and opens it; knows every open way, so that Ctrl-C can hang up."""

from __future__ import annotations

import itertools
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
_gateways: dict[str, NodeConnection] = {}
_lock = threading.Lock()


class Reach:
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
        reason = self._needs_openssh(settings)
        if host.connection == "openssh" or reason:
            if reason:
                self._say(f"using the system's ssh, because the configuration has {reason}")
            return open_openssh(host, settings)
        for warning in settings.known_hosts.warnings:
            self._say(warning)
        return SshTransport(host, NodeConnection(host.name, settings, gateway_for(host, settings)))

    def _needs_openssh(self, settings: Settings) -> str:
        if settings.needs_openssh:
            return settings.needs_openssh
        unknown = not settings.known_hosts.keys(settings.known_name)
        return "@cert-authority in known_hosts" if unknown and settings.known_hosts.has_authorities else ""

    def _say(self, sentence: str) -> None:
        self.said.setdefault(sentence)


def gateway_for(host: Host, settings: Settings) -> NodeConnection | None:
    """The connection to ProxyJump's last host, shared by all nodes behind it."""
    if not settings.jump:
        return None
    with _lock:
        if settings.jump not in _gateways:
            _gateways[settings.jump] = _jump(host, settings.jump)
        return _gateways[settings.jump]


def _jump(host: Host, chain: str) -> NodeConnection:
    """``user@host:port,next``: each jump host is reached through the one before it, under the same rules."""
    connection: NodeConnection | None = None
    for hop in chain.split(","):
        user, _, place = hop.strip().rpartition("@")
        name, port = _split_port(place)
        via = Host(f"{host.name} via {name}", name, host.origin, port=port, user=user or None, key_file=host.key_file)
        settings = resolve(replace(via, ssh_args=tuple(_own_arguments(host))))
        connection = NodeConnection(via.name, settings, connection)
    if connection is None:
        raise AssertionError(chain)
    return connection


def _own_arguments(host: Host) -> list[str]:
    """The host's ssh options that hold for its jump hosts too: where host keys are recorded."""
    words = list(host.ssh_args)
    return [w for o, v in itertools.pairwise(words) if "KnownHostsFile" in v for w in (o, v)]


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
