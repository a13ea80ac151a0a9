"""SSH transport: a `fabric.Connection` that verifies the host key before it sends anything, and opens fast.

Fabric by itself accepts any host key; here, `known_hosts.KnownHosts` decides. ``bench/fanout.py`` measures what makes
it fast: no delayed ACKs, each key parsed once, cheap algorithms first.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import logging
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import fabric
import paramiko
from paramiko.ssh_exception import IncompatiblePeer
from paramiko.transport import Transport

from gpuops.document import read_bytes, regular
from gpuops.errors import (
    AuthenticationError,
    ConnectError,
    DocumentError,
    HostKeyError,
    IncompatibleError,
    LostError,
    NodeError,
)
from gpuops.inventory import Host
from gpuops.proposal import propose
from gpuops.secret import Secret
from gpuops.transport.agent import AgentTransport
from gpuops.transport.known_hosts import KnownKey, fingerprint
from gpuops.transport.quick import QuickSocket, QuickTransport
from gpuops.transport.settings import Settings
from gpuops.transport.stream import in_words

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # otherwise its threads print tracebacks to stderr

T = TypeVar("T")
_REPLY_SECONDS = 30.0  # PAM and busy servers are slow
_ENDING_SECONDS = 1.0  # from the end of a command's output to the report of how it ended
_MOST_KEYS = 5  # sshd's MaxAuthTries is 6; a password may still follow


class NodeConnection(fabric.Connection):  # type: ignore[misc] # Fabric has no types
    """Fabric's connection, opened by `QuickTransport`; ``run``, ``put``, ``get`` and ``forward_local`` work."""

    def __init__(self, node: str, settings: Settings, gateway: NodeConnection | None = None) -> None:
        # one Config per connection: Fabric's is not safe to share between threads
        super().__init__(
            settings.address, settings.user, settings.port, config=fabric.Config(lazy=True), forward_agent=False
        )
        self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        # Fabric redirects plain attribute assignments to its config tree
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "gate", gateway)
        object.__setattr__(self, "failure", None)
        object.__setattr__(self, "hung_up", False)
        object.__setattr__(self, "opening", threading.Lock())  # many threads may open a jump host at once

    def open(self) -> None:
        """Connect, verify the host key and authenticate; after a failure, raise the same error without trying again."""
        with self.opening:
            if self.failure is not None:
                raise type(self.failure)(self.node, self.failure.what, self.failure.kind)
            self._check_hung_up()
            if not self.is_connected:
                try:
                    self.transport = self._with_retries(self._open_once)
                except NodeError as error:
                    object.__setattr__(self, "failure", error)
                    raise
                self.client._transport = self.transport  # noqa: SLF001 - what SSHClient.connect does
            self._check_hung_up()

    def limit_silence(self, seconds: float) -> None:
        """Give the node up after ``seconds`` without a sign of life; not possible through a jump host."""
        if isinstance(own_socket := self.transport.sock, QuickSocket):
            own_socket.limit_silence(seconds)

    def hang_up(self) -> None:
        """Close permanently; if another thread is opening the connection, it gets `LostError`."""
        object.__setattr__(self, "hung_up", True)
        if self.transport is not None:
            self.transport.close()

    def _check_hung_up(self) -> None:
        if self.hung_up:
            self.hang_up()
            raise LostError(self.node, "gpuops closed the connection")

    def _with_retries(self, attempt: Callable[[], T]) -> T:
        """Retry if a server is too busy to send its greeting: sshd drops connections beyond MaxStartups."""
        for pause in (0.5, 1.0, 2.0):
            with contextlib.suppress(_BusyError):
                return attempt()
            time.sleep(pause * random.uniform(0.6, 2.0))  # noqa: S311 - jitter, not a secret
        try:
            return attempt()
        except _BusyError as error:
            raise ConnectError(self.node, str(error)) from error

    def _open_once(self) -> QuickTransport:
        self._check_hung_up()
        with contextlib.ExitStack() as on_failure:
            transport = QuickTransport(self._dial())
            on_failure.callback(transport.close)
            transport.auth_timeout = _REPLY_SECONDS
            recorded = self.settings.known_hosts.keys(self.settings.known_name)
            transport.prefer_key_types(recorded)
            self._handshake(transport)
            verify_host_key(self.node, self.settings, transport.get_remote_server_key(), recorded)
            authenticate(self.node, self.settings, transport)
            on_failure.pop_all()
        return transport

    def show_key(self, types: tuple[str, ...]) -> paramiko.PKey:
        """Return the server's host key of one of ``types``, verified by a handshake, without logging in."""
        return self._with_retries(partial(self._show_key, types))

    def _show_key(self, types: tuple[str, ...]) -> paramiko.PKey:
        with contextlib.ExitStack() as always:
            transport = QuickTransport(self._dial())
            always.callback(transport.close)
            transport._preferred_keys = types  # noqa: SLF001 - as prefer_key_types does
            self._handshake(transport)
            return transport.get_remote_server_key()

    def _dial(self) -> Any:
        settings = self.settings
        try:
            if self.gate is not None:
                return self.gate.open_through(settings.address, settings.port)
            return QuickSocket.dial(settings.address, settings.port, settings.connect_seconds)
        except (socket.gaierror, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not a host name"
            raise ConnectError(self.node, f'no address for "{settings.address}": {why}', "dns") from error
        except TimeoutError as error:
            raise ConnectError(
                self.node, f"connection timed out after {settings.connect_seconds:g} s ({settings})", "timeout"
            ) from error
        except ConnectionResetError as error:
            raise _BusyError(f"connection reset ({settings})") from error
        except OSError as error:
            if error.errno == errno.ECONNREFUSED:
                raise ConnectError(self.node, f"connection refused ({settings})", "refused") from error
            why = (error.strerror or str(error)).lower()
            raise ConnectError(self.node, f"cannot connect to {settings}: {why}", "closed") from error

    def open_through(self, address: str, port: int) -> paramiko.Channel:
        """Open a channel to another address through this connection (ProxyJump)."""
        self.open()
        try:
            return self.transport.open_channel("direct-tcpip", (address, port), ("", 0), timeout=_REPLY_SECONDS)
        except (paramiko.SSHException, EOFError) as error:
            what = f"the jump host {self.settings} cannot reach {address}:{port}"
            raise ConnectError(self.node, what, "jump") from error

    def _handshake(self, transport: QuickTransport) -> None:
        try:
            transport.start_client(timeout=self.settings.connect_seconds)
        except IncompatiblePeer as error:
            raise IncompatibleError(self.node, f"no common algorithm: {error} ({self.settings})") from error
        except paramiko.SSHException as error:
            raise self._explain(error) from error
        except EOFError as error:
            raise _BusyError(f"the server closed the connection before its greeting ({self.settings})") from error
        if not transport.initial_kex_done:  # on timeout, start_client simply returns
            raise self._no_greeting_error()

    def _no_greeting_error(self) -> ConnectError:
        seconds = self.settings.connect_seconds
        what = f"connected, but no SSH greeting within {seconds:g} s ({self.settings})"
        return ConnectError(self.node, what, "timeout")

    def _explain(self, error: paramiko.SSHException) -> Exception:
        kind = _kind_of(error)
        if kind == "closed":
            return _BusyError(f"the server closed the connection before its greeting (MaxStartups?) ({self.settings})")
        if kind == "timeout":
            return self._no_greeting_error()
        return ConnectError(self.node, f"SSH handshake failed: {error} ({self.settings})")


class _BusyError(Exception):
    """Server that closed the connection without a greeting; worth a retry."""


def _kind_of(error: Exception) -> Literal["closed", "timeout", "failed"]:
    """Return what happened; paramiko's errors for closed, silent and refusing servers differ only in their text."""
    text, cause = str(error).lower(), str(error.__cause__ or error.__context__ or "").lower()
    if "banner" in text:  # no greeting arrived
        return "timeout" if any("timeout" in words or "timed out" in words for words in (text, cause)) else "closed"
    return "timeout" if "timeout" in text else "failed"


def verify_host_key(node: str, settings: Settings, shown: paramiko.PKey, recorded: list[KnownKey]) -> None:
    """Raise `HostKeyError` unless the key that the server presented is recorded and not revoked."""
    blob, print_ = shown.asbytes(), fingerprint(shown.asbytes())
    same = [key for key in recorded if key.blob == blob]
    if any(key.revoked for key in same):
        raise HostKeyError(node, f"its host key {print_} is revoked ({same[0].where}); do not connect")
    if same:
        return
    valid = [key for key in recorded if not key.revoked]
    if valid:
        old = next((key for key in valid if key.type == shown.get_name()), valid[0])
        raise HostKeyError(
            node,
            f"host key changed. {old.where} has {old.fingerprint}, the node presents {print_}."
            f" If the node was reinstalled: {propose('trust', node, '--replace')}",
        )
    raise HostKeyError(
        node,
        f"host key unknown. The node at {settings} presents {print_} ({shown.get_name()}), and no known_hosts file has"
        f" {settings.known_name}. To compare and record the key: {propose('trust', node)}",
    )


def authenticate(node: str, settings: Settings, transport: Transport) -> None:
    """Offer keys, then the password; raise `AuthenticationError` that lists what was tried."""
    tried: list[str] = []
    allowed: list[str] = []
    for method, label, attempt in _attempts(settings, transport):
        if method not in (allowed or [method]):
            continue
        tried.append(label)
        if _accepted(node, attempt, allowed):
            return
        if not transport.is_active():
            break
    if len(tried) == 1 and not transport.is_active():
        raise ConnectError(node, f"server closed the connection during authentication as {settings.user} ({settings})")
    refused = ", ".join(tried) or "the login: no usable key in ~/.ssh and no agent"
    accepts = f"; the server accepts {', '.join(filter(None, allowed))}" if allowed else ""
    raise AuthenticationError(
        node, f"{settings.user}@{settings} refused {refused}{accepts}{_keys_not_offered(settings)}"
    )


def _attempts(settings: Settings, transport: Transport) -> Iterator[tuple[str, str, Callable[[], list[str]]]]:
    for label, key in itertools.islice(_keys(settings), _MOST_KEYS):
        yield "publickey", label, partial(transport.auth_publickey, settings.user, key)
    if isinstance(settings.password, Secret):
        yield "", "password", partial(transport.auth_password, settings.user, settings.password.reveal())


def _accepted(node: str, attempt: Callable[[], list[str]], allowed: list[str]) -> bool:
    try:
        return not attempt()  # a list of further methods means that this one was not enough
    except paramiko.BadAuthenticationType as error:
        allowed[:] = [*error.allowed_types, ""]
    except (paramiko.SSHException, EOFError) as error:
        if _kind_of(error) == "timeout":
            what = f"connected, but no answer to the login within {_REPLY_SECONDS:g} s"
            raise ConnectError(node, what, "timeout") from error
    return False


def _keys(settings: Settings) -> Iterator[tuple[str, paramiko.PKey]]:
    """Yield the keys to offer: configured key files first, then the agent's keys, then the default files."""
    files = [(path, key) for path in settings.key_files if isinstance(key := _load_key(path), paramiko.PKey)]
    if settings.keys_named:
        yield from files
    for key in paramiko.Agent().get_keys():
        if not (settings.keys_named and settings.identities_only) or key.asbytes() in _public_keys(settings):
            yield f"agent key {key.fingerprint}", key
    if not settings.keys_named:
        yield from files


@lru_cache(maxsize=64)
def _load_key(path: str) -> paramiko.PKey | str:
    """Return a private key, parsed once per process; the reason if it is missing, encrypted or of an unknown type."""
    try:
        return paramiko.PKey.from_path(regular(Path(path).expanduser()))
    except DocumentError as error:
        return error.what
    except (paramiko.PasswordRequiredException, TypeError):  # cryptography raises TypeError without a passphrase
        return "encrypted; ssh-add it"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except (ValueError, paramiko.SSHException):
        return "not a private key"


def _public_keys(settings: Settings) -> set[bytes]:
    """Return the public keys beside the configured key files: an agent may have the private ones."""
    blobs = set()
    for path in settings.key_files:
        with contextlib.suppress(DocumentError, ValueError, IndexError):
            blobs.add(base64.b64decode(read_bytes(regular(Path(f"{path}.pub").expanduser())).split()[1]))
    return blobs


def _keys_not_offered(settings: Settings) -> str:
    """Return the key files that could not be offered, and why; a missing default file is normal."""
    reasons = {path: why for path in settings.key_files if isinstance(why := _load_key(path), str)}
    unusable = [f"{p} ({why})" for p, why in reasons.items() if settings.keys_named or Path(p).expanduser().exists()]
    return f"; not offered: {', '.join(unusable)}" if unusable else ""


class _TimedEvent(threading.Event):
    """Event whose waits always time out; paramiko waits for the reply to ``exec`` without a timeout."""

    def wait(self, timeout: float | None = None) -> bool:
        if not super().wait(timeout or _REPLY_SECONDS):
            self.set()
        return True


class ChannelStream:
    """Command on a node as a stream, through one SSH channel."""

    def __init__(self, connection: NodeConnection, line: str) -> None:
        self._connection = connection
        try:
            self._channel = connection.transport.open_session(timeout=_REPLY_SECONDS)
            self._channel.event = _TimedEvent()
            self._channel.settimeout(_REPLY_SECONDS)
            self._channel.exec_command(line)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise LostError(connection.node, f"the connection broke before the command ran: {error}") from error

    def write(self, data: bytes) -> None:
        """Send all of ``data``; if the command has ended, the next read reports that, after what it said before."""
        try:
            self._channel.sendall(data)
        except OSError as error:
            if self._channel.closed and self._connection.transport.is_active():
                return
            raise LostError(self._connection.node, "the connection broke while the request was sent") from error

    def read(self, seconds: float) -> bytes:
        """Return some bytes of stdout, empty at the end."""
        self._channel.settimeout(seconds)
        data = self._channel.recv(65536)
        if not data and not self._connection.transport.is_active():
            raise LostError(self._connection.node, "the connection broke in the middle of the answer")
        return data

    def ending(self) -> str:
        """Return how the command ended, as the node reported it; empty if it did not."""
        self._channel.status_event.wait(_ENDING_SECONDS)
        name = self._connection.transport.signals.get(self._channel.chanid, "")
        if name:
            number = getattr(signal, f"SIG{name}", None)
            return in_words(-number) if number else f"ended by signal {name}"
        return in_words(self._channel.exit_status) if self._channel.exit_status >= 0 else ""

    def close(self) -> None:
        """Close this channel."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the connection may be closed already
            self._channel.close()


class SshTransport(AgentTransport):
    """Transport over its own `NodeConnection`, which the first question opens."""

    def __init__(self, host: Host, connection: NodeConnection) -> None:
        super().__init__(host.name, self._start, python=host.python, become_password=host.become_password)
        self.connection = connection
        self._silence_seconds = 0.0

    def limit_silence(self, seconds: float) -> None:
        """Give the node up after ``seconds`` without a sign of life, also while it owes an answer."""
        self._silence_seconds = seconds

    def _start(self, line: str) -> ChannelStream:
        self.connection.open()
        if self._silence_seconds:
            self.connection.limit_silence(self._silence_seconds)
        return ChannelStream(self.connection, line)

    def close(self) -> None:
        """Close the connection."""
        super().close()
        self.connection.hang_up()
