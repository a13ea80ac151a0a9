"""Ownership of connections: open a transport of the right type for a host, and close everything that is open."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gpuops.cancellation import CancelToken
from gpuops.errors import ClosedError
from gpuops.inventory import Host
from gpuops.transport.agent import AgentTransport
from gpuops.transport.local import open_local
from gpuops.transport.openssh import ControlMasters, open_openssh
from gpuops.transport.settings import Settings, resolve

if TYPE_CHECKING:
    from gpuops.transport.ssh import NodeConnection

Hops = tuple[Settings, ...]
"""Jump hosts in order, the first one being the closest to this machine."""
_CLOSE_SECONDS = 8.0
_MOST_CLOSERS = 16  # threads that close in parallel


class Opener(Protocol):
    """Interface of a `TransportGroup`, or of a pool of nodes that has one: it opens transports and closes them all.

    Work that uses several transports at once is cancelled through ``cancel``.
    """

    @property
    def cancel(self) -> CancelToken:
        """Token that ends that work from another thread."""

    def open(self, host: Host) -> AgentTransport:
        """Return a transport to ``host``; it connects, and may raise `gpuops.errors.NodeError`, on first use."""

    def close(self) -> None:
        """Close every transport; work that waits for an answer in another thread gets `gpuops.errors.LostError`."""


class Connections:
    """All connections of one owner, such as a cluster or a run of the command line. Thread-safe.

    Each piece of work opens its transports through its own `TransportGroup`. Connections to jump hosts are shared.
    """

    def __init__(self, connect_seconds: float = 10.0) -> None:
        self.connect_seconds = connect_seconds
        self.gateways = Gateways()
        self._lock = threading.Lock()
        self._groups: set[TransportGroup] = set()
        self._notices: dict[str, bool] = {}
        self._closed = False

    def group(self, cancel: CancelToken | None = None) -> TransportGroup:
        """Return a new group, a context manager that closes what was opened through it.

        Raise `ClosedError` after `close`.
        """
        group = TransportGroup(self, cancel or CancelToken())
        with self._lock:
            self.check_open()
            self._groups.add(group)
        return group

    def check_open(self) -> None:
        """Raise `ClosedError` after `close`."""
        if self._closed:
            raise ClosedError("these connections are already closed")

    def forget(self, group: TransportGroup) -> None:
        """Remove a closed group."""
        with self._lock:
            self._groups.discard(group)

    def note(self, sentence: str) -> None:
        """Keep a sentence for `notices`."""
        with self._lock:
            self._notices.setdefault(sentence, False)

    def notices(self) -> list[str]:
        """Return messages for the user, each once: why the system's ssh is used, unusable lines of known_hosts."""
        with self._lock:
            unread = [sentence for sentence, read in self._notices.items() if not read]
            self._notices.update(dict.fromkeys(unread, True))
        return unread

    def close(self) -> None:
        """Close everything within 8 seconds; never raise. Safe to call twice."""
        ends = time.monotonic() + _CLOSE_SECONDS
        with self._lock:
            self._closed = True
            groups, self._groups = self._groups, set()
        _close_all([transport.close for group in groups for transport in group.drain()], ends)
        _close_all([connection.hang_up for connection in self.gateways.drain()], ends)
        _end_all([group.masters for group in groups], ends)


class TransportGroup:
    """Transports of one piece of work, such as a fan-out or a measurement; closing it does not affect other groups.

    Thread-safe. A transport that is opened after `close` is closed from the start.
    """

    def __init__(self, connections: Connections, cancel: CancelToken) -> None:
        self.cancel = cancel
        self.masters = ControlMasters()
        self._connections = connections
        self._lock = threading.Lock()
        self._transports: set[AgentTransport] = set()
        self._closed = False

    def __enter__(self) -> TransportGroup:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connect_seconds(self) -> float:
        """Timeout for a host to accept a connection, and again to send its SSH greeting."""
        return self._connections.connect_seconds

    def open(self, host: Host) -> AgentTransport:
        """Return a transport to ``host``; it connects, and may raise `gpuops.errors.NodeError`, on first use.

        Raise `ClosedError` if all connections are closed already.
        """
        self._connections.check_open()
        transport = self._choose(host)
        transport.bmc = host.bmc
        transport.on_close = self._forget
        with self._lock:
            self._transports.add(transport)
        if self._closed:  # perhaps in the meantime, by another thread
            self.close()
        return transport

    def _forget(self, transport: AgentTransport) -> None:
        with self._lock:
            self._transports.discard(transport)

    def _choose(self, host: Host) -> AgentTransport:
        if host.connection == "local":
            return open_local(host)
        settings = resolve(host, connect_seconds=self.connect_seconds)
        hops = hops_to(host, settings)
        reason = next(filter(None, map(_needs_openssh, (settings, *hops))), "")
        if host.connection == "openssh" or reason:
            if reason:
                self._connections.note(f"using the system's ssh, because the configuration contains {reason}")
            return open_openssh(host, settings, self.masters)
        for warning in settings.known_hosts.warnings:
            self._connections.note(warning)
        from gpuops.transport.ssh import NodeConnection, SshTransport

        return SshTransport(host, NodeConnection(host.name, settings, self.gateway(hops)))

    def gateway(self, hops: Hops) -> NodeConnection | None:
        """Return the connection to the last jump host of ``hops``; it is closed with the last group that uses it."""
        connection = self._connections.gateways.connection(hops, self)
        if self._closed:
            self.close()
        return connection

    def drain(self) -> set[AgentTransport]:
        """End the group and return the transports that must still be closed."""
        self._closed = True
        with self._lock:
            transports, self._transports = self._transports, set()
        return transports

    def close(self) -> None:
        """Close the transports of this group, its ssh control masters, and the jump hosts that no other group uses.

        It takes at most 8 seconds. Safe to call twice, and while other threads use the transports: they get
        `gpuops.errors.LostError`.
        """
        ends = time.monotonic() + _CLOSE_SECONDS
        _close_all([transport.close for transport in self.drain()], ends)
        _close_all([connection.hang_up for connection in self._connections.gateways.release(self)], ends)
        _end_all([self.masters], ends)
        self._connections.forget(self)


class Gateways:
    """Connections to jump hosts, each shared by the groups that use it. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[Hops, tuple[NodeConnection, set[TransportGroup]]] = {}

    def connection(self, hops: Hops, group: TransportGroup) -> NodeConnection | None:
        """Return the connection to the last of ``hops``, each reached through the one before it; None without hops.

        After a failure, it fails immediately for all of its groups; a new group tries again.
        """
        if not hops:
            return None
        from gpuops.transport.ssh import NodeConnection

        before = self.connection(hops[:-1], group)
        with self._lock:
            connection, groups = self._shared.get(hops, (None, set()))
            failed = connection is not None and connection.failure is not None and group not in groups
            if connection is None or connection.gate is not before or failed:
                connection, groups = NodeConnection(hops[-1].address, hops[-1], before), set()
                self._shared[hops] = connection, groups
            groups.add(group)
            return connection

    def release(self, group: TransportGroup) -> list[NodeConnection]:
        """Remove ``group`` and return the connections that only it used, the last jump host first."""
        with self._lock:
            alone = [hops for hops, (_, groups) in self._shared.items() if groups == {group}]
            for _, groups in self._shared.values():
                groups.discard(group)
            return [self._shared.pop(hops)[0] for hops in sorted(alone, key=len, reverse=True)]

    def drain(self) -> list[NodeConnection]:
        """Remove everything and return the connections that must still be closed."""
        with self._lock:
            shared, self._shared = self._shared, {}
        return [shared[hops][0] for hops in sorted(shared, key=len, reverse=True)]


def _close_all(closers: Sequence[Callable[[], None]], ends: float) -> None:
    """Call ``closers`` in parallel; do not wait beyond ``ends`` (monotonic) for one that is stuck."""
    waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    for closer in closers:
        waiting.put(closer)

    def work() -> None:
        import paramiko

        while True:
            try:
                closer = waiting.get_nowait()
            except queue.Empty:
                return
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # it may be closed already
                closer()

    threads = [threading.Thread(target=work, daemon=True) for _ in closers[:_MOST_CLOSERS]]
    try:
        for thread in threads:
            thread.start()
    except RuntimeError:  # this process cannot start more threads
        work()
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, ends - time.monotonic()))


def _end_all(owners: Sequence[ControlMasters], ends: float) -> None:
    """End the control masters of ``owners``, and remove their directories."""
    _close_all([partial(masters.end, socket) for masters in owners for socket in masters.drain()], ends)
    for masters in owners:
        masters.remove()


def _needs_openssh(settings: Settings) -> str:
    if settings.needs_openssh:
        return settings.needs_openssh
    unknown = not settings.known_hosts.keys(settings.known_name)
    return "@cert-authority in known_hosts" if unknown and settings.known_hosts.has_authorities else ""


def hops_to(host: Host, settings: Settings) -> Hops:
    """Return the jump hosts of ``host`` (``user@host:port,next``), each under the same rules as a node."""
    return tuple(_hop(host, settings, place.strip()) for place in settings.jump.split(",") if place.strip())


def _hop(host: Host, settings: Settings, place: str) -> Settings:
    user, _, place = place.rpartition("@")
    name, port = _split_port(place)
    arguments = tuple(_own_arguments(host))
    via = Host(name, name, host.origin, port=port, user=user or None, key_file=host.key_file, ssh_args=arguments)
    resolved = resolve(via, connect_seconds=settings.connect_seconds)
    return replace(
        resolved, needs_openssh=resolved.needs_openssh or ("a jump host behind another" if resolved.jump else "")
    )


def _own_arguments(host: Host) -> list[str]:
    """Return the host's ssh options that also apply to its jump hosts: where host keys are recorded."""
    return [w if w.startswith("-o") else f"-o{w}" for w in host.ssh_args if "knownhostsfile" in w.lower()]


def _split_port(place: str) -> tuple[str, int | None]:
    name, colon, port = place.rpartition(":")
    if colon and port.isdigit() and (":" not in name or name.endswith("]")):
        return name.strip("[]"), int(port)
    return place.strip("[]"), None
