"""One host's port: access, host key, and the ways in which a connection can fail."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from gpuops.lab.files import HostFiles
from gpuops.lab.model import Behaviour
from gpuops.lab.ports import ADDRESS, held, listening

Run = Callable[["asyncssh.SSHServerProcess[bytes]", str], Awaitable[None]]


class LabSshServer(asyncssh.SSHServer):
    """SSH server of one host: accepts the lab's key, and forwards only to the lab's own ports (for ProxyJump)."""

    def __init__(self, ports: Collection[int]) -> None:
        self.ports = ports

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        """Allow a jump from one lab host to another."""
        del orig_host, orig_port
        return dest_host in (ADDRESS, "localhost") and dest_port in self.ports


@dataclass(frozen=True)
class Access:
    """Settings that all hosts of a lab share: the client's key, the ports, how commands run and where homes are."""

    authorized: asyncssh.SSHAuthorizedKeys
    ports: Collection[int]
    run: Run
    home: Callable[[str], Path]


class Listener:
    """The port of one host."""

    def __init__(self, name: str, port: int, listening_socket: socket.socket, access: Access) -> None:
        self.name = name
        self.port = port
        self.key = asyncssh.generate_private_key("ssh-ed25519")
        self._access = access
        self._behaviour = Behaviour()
        self._options: asyncssh.SSHServerConnectionOptions | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._sessions: set[asyncssh.SSHServerConnection] = set()
        self._open(listening_socket)

    @property
    def known_hosts_line(self) -> str:
        """The known_hosts line of this host."""
        return f"[{ADDRESS}]:{self.port} {self.key.export_public_key().decode().strip()}\n"

    def _open(self, at: socket.socket) -> None:
        self._socket = at
        asyncio.get_running_loop().add_reader(at.fileno(), self._accept)

    def close(self) -> None:
        """Stop listening; open connections stay until they end."""
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()

    def stop_listening(self) -> None:
        """Refuse new connections, and abort the open ones."""
        self.close()
        self._socket = held(self.port)
        for session in self._sessions:
            session.abort()

    def resume_listening(self) -> None:
        """Listen again, unless the host refuses connections."""
        if self._behaviour.connection != "refuse":
            self._socket.close()
            self._open(listening(self.port))

    def behave(self, behaviour: Behaviour) -> None:
        """Set how the next connections are handled."""
        before, self._behaviour = self._behaviour, behaviour
        if before.connection == behaviour.connection:
            return
        self._options = None
        if behaviour.connection == "refuse":
            self.close()
            self._socket = held(self.port)
        elif before.connection == "refuse":
            self._socket.close()
            self._open(listening(self.port))

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        task = asyncio.ensure_future(self._serve(connection))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        how = self._behaviour
        if how.connection == "hang":
            await _until_left(connection)
            return
        await asyncio.sleep(how.banner_delay_seconds)
        try:
            # referenced until it ends: the event loop itself does not keep it alive
            server = await asyncssh.run_server(connection, options=self._configured())
            self._sessions.add(server)
            await server.wait_closed()
            self._sessions.discard(server)
        except (OSError, asyncssh.Error):
            connection.close()

    def _configured(self) -> asyncssh.SSHServerConnectionOptions:
        if self._options is None:
            wrong = self._behaviour.connection == "wrong-key"
            self._options = asyncssh.SSHServerConnectionOptions(
                server_factory=functools.partial(LabSshServer, self._access.ports),
                server_host_keys=[asyncssh.generate_private_key("ssh-ed25519") if wrong else self.key],
                authorized_client_keys=self._access.authorized,
                process_factory=self._process,
                sftp_factory=self._files,
                encoding=None,
                line_editor=False,
                allow_scp=False,
                compression_algs=None,
            )
        return self._options

    def _files(self, channel: asyncssh.SSHServerChannel[bytes]) -> HostFiles:
        return HostFiles(channel, self._access.home(self.name))

    async def _process(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        await self._access.run(process, self.name)


async def _until_left(connection: socket.socket) -> None:
    """Read without answering, until the client gives up."""
    loop = asyncio.get_running_loop()
    connection.settimeout(0)
    try:
        while await loop.sock_recv(connection, 4096):
            pass
    except OSError:
        pass
    finally:
        connection.close()
