"""A `fabric.Connection` that verifies the host key before it sends anything, and opens fast.

Fabric's own constructor accepts any host key; here known_hosts decides, through `known_hosts.KnownHosts`. What makes it
fast (no delayed ACK, each key parsed once, cheap algorithms first) is measured in ``bench/fanout.py``.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import logging
import random
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

from gpuops.errors import (
    AuthenticationError,
    ConnectError,
    HostKeyError,
    IncompatibleError,
    LostError,
    NodeError,
    UnreachableKind,
)
from gpuops.inventory import Host
from gpuops.proposal import propose
from gpuops.secret import Secret
from gpuops.transport.agent import AgentTransport
from gpuops.transport.known_hosts import KnownKey, fingerprint
from gpuops.transport.quick import QuickSocket, QuickTransport
from gpuops.transport.settings import Settings

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else its threads print tracebacks on stderr

T = TypeVar("T")
_REPLY_SECONDS = 30.0  # PAM and a busy server take their time
_MOST_KEYS = 5  # sshd's MaxAuthTries is 6; a password may still follow


class NodeConnection(fabric.Connection):  # type: ignore[misc] # Fabric has no types
    """Fabric's connection (``run``, ``put``, ``get``, ``forward_local`` work), opened by `QuickTransport`."""

    def __init__(self, node: str, settings: Settings, gateway: NodeConnection | None = None) -> None:
        # One Config each: Fabric's is not safe to share between threads.
        super().__init__(
            settings.address, settings.user, settings.port, config=fabric.Config(lazy=True), forward_agent=False
        )
        self.client.set_missing_host_key_policy(paramiko.RejectPolicy())
        # Fabric keeps attributes of its own in a config tree; these are ours and plain.
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "gate", gateway)
        object.__setattr__(self, "failure", None)
        object.__setattr__(self, "hung_up", False)
        object.__setattr__(self, "opening", threading.Lock())  # a jump host is opened by many threads at once

    def open(self) -> None:
        """Connect, verify the host key, authenticate; what failed once fails again at once, without another try."""
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

    def hang_up(self) -> None:
        """Close for good; where another thread is opening it, that ends with `LostError`."""
        object.__setattr__(self, "hung_up", True)
        if self.transport is not None:
            self.transport.close()

    def _check_hung_up(self) -> None:
        if self.hung_up:
            self.hang_up()
            raise LostError(self.node, "hung up")

    def _with_retries(self, attempt: Callable[[], T]) -> T:
        """Try again where a server is too busy to greet: sshd drops connections over its MaxStartups."""
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
            kind: UnreachableKind = "refused" if error.errno == errno.ECONNREFUSED else "closed"
            raise ConnectError(self.node, f"{(error.strerror or str(error)).lower()} ({settings})", kind) from error

    def open_through(self, address: str, port: int) -> paramiko.Channel:
        """A channel through this connection to somewhere else: ProxyJump."""
        self.open()
        try:
            return self.transport.open_channel("direct-tcpip", (address, port), ("", 0), timeout=_REPLY_SECONDS)
        except (paramiko.SSHException, EOFError) as error:
            what = f"the jump host {self.settings} does not reach {address}:{port}"
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
        if not transport.initial_kex_done:  # start_client just returns when its time is over
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
    """The server did not greet; worth another try."""


def _kind_of(error: Exception) -> Literal["closed", "timeout", "failed"]:
    """Return what happened; paramiko distinguishes a closed, a silent and an unwilling server by text alone."""
    text, cause = str(error).lower(), str(error.__cause__ or error.__context__ or "").lower()
    if "banner" in text:  # its greeting did not come
        return "timeout" if any("timeout" in words or "timed out" in words for words in (text, cause)) else "closed"
    return "timeout" if "timeout" in text else "failed"


def verify_host_key(node: str, settings: Settings, shown: paramiko.PKey, recorded: list[KnownKey]) -> None:
    """Raise `HostKeyError` unless the key that the server showed is recorded and not revoked."""
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
            f"host key changed. {old.where} has {old.fingerprint}, the node shows {print_}."
            f" If the node was reinstalled: {propose('trust', node, '--replace')}",
        )
    raise HostKeyError(
        node,
        f"host key unknown. The node at {settings} shows {print_} ({shown.get_name()}), and no known_hosts file has"
        f" {settings.known_name}. If that is right: {propose('trust', node)}",
    )


def authenticate(node: str, settings: Settings, transport: Transport) -> None:
    """Offer keys, then the password; `AuthenticationError` names what was tried."""
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
    offered = ", ".join(tried) or "nothing (no usable key in ~/.ssh, no agent)"
    accepts = f"; the server accepts {', '.join(filter(None, allowed))}" if allowed else ""
    raise AuthenticationError(
        node, f"{settings.user}@{settings} refused {offered}{accepts}{_keys_not_offered(settings)}"
    )


def _attempts(settings: Settings, transport: Transport) -> Iterator[tuple[str, str, Callable[[], list[str]]]]:
    for label, key in itertools.islice(_keys(settings), _MOST_KEYS):
        yield "publickey", label, partial(transport.auth_publickey, settings.user, key)
    if isinstance(settings.password, Secret):
        yield "", "password", partial(transport.auth_password, settings.user, settings.password.reveal())


def _accepted(node: str, attempt: Callable[[], list[str]], allowed: list[str]) -> bool:
    try:
        return not attempt()  # a list of further methods means: not yet
    except paramiko.BadAuthenticationType as error:
        allowed[:] = [*error.allowed_types, ""]
    except (paramiko.SSHException, EOFError) as error:
        if _kind_of(error) == "timeout":
            what = f"connected, but no answer to the login within {_REPLY_SECONDS:g} s"
            raise ConnectError(node, what, "timeout") from error
    return False


def _keys(settings: Settings) -> Iterator[tuple[str, paramiko.PKey]]:
    """Named key files first, then the agent's, then the default files."""
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
    """A private key, parsed once a process; why not, where it is absent, encrypted or of an unknown kind."""
    try:
        return paramiko.PKey.from_path(Path(path).expanduser())
    except (paramiko.PasswordRequiredException, TypeError):  # cryptography misses the passphrase as an argument
        return "encrypted; ssh-add it"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except (ValueError, paramiko.SSHException):
        return "not a private key"


def _public_keys(settings: Settings) -> set[bytes]:
    """The public halves that lie beside the named key files: an agent may hold the private ones."""
    blobs = set()
    for path in settings.key_files:
        with contextlib.suppress(OSError, ValueError, IndexError):
            blobs.add(base64.b64decode(Path(f"{path}.pub").expanduser().read_text().split()[1]))
    return blobs


def _keys_not_offered(settings: Settings) -> str:
    """Return the key files that could not be offered, and why; an absent default file is normal."""
    reasons = {path: why for path in settings.key_files if isinstance(why := _load_key(path), str)}
    unusable = [f"{p} ({why})" for p, why in reasons.items() if settings.keys_named or Path(p).expanduser().exists()]
    return f"; not offered: {', '.join(unusable)}" if unusable else ""


class _TimedEvent(threading.Event):
    """An event with a limit to every wait; paramiko waits without one for the reply to ``exec``."""

    def wait(self, timeout: float | None = None) -> bool:
        if not super().wait(timeout or _REPLY_SECONDS):
            self.set()
        return True


class ChannelStream:
    """A command on a node, through one SSH channel."""

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
        """Send all of ``data``."""
        try:
            self._channel.sendall(data)
        except OSError as error:
            raise LostError(self._connection.node, "the connection broke while the request was sent") from error

    def read(self, seconds: float) -> bytes:
        """Some bytes of stdout, empty at the end."""
        self._channel.settimeout(seconds)
        data = self._channel.recv(65536)
        if not data and not self._connection.transport.is_active():
            raise LostError(self._connection.node, "the connection broke in the middle of the answer")
        return data

    def close(self) -> None:
        """Hang up this channel."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the connection may be gone already
            self._channel.close()


class SshTransport(AgentTransport):
    """A node over its own `NodeConnection`, opened at the first question."""

    def __init__(self, host: Host, connection: NodeConnection) -> None:
        super().__init__(host.name, self._start, python=host.python, become_password=host.become_password)
        self.connection = connection

    def _start(self, line: str) -> ChannelStream:
        self.connection.open()
        return ChannelStream(self.connection, line)

    def close(self) -> None:
        """Hang up."""
        super().close()
        self.connection.hang_up()
