"""Faster versions of paramiko's transport and its socket: cheap algorithms, no polling, no delayed ACKs."""

from __future__ import annotations

import contextlib
import socket
from typing import Any, ClassVar

from paramiko.common import MSG_CHANNEL_REQUEST
from paramiko.message import Message
from paramiko.transport import Transport

from gpuops.transport.known_hosts import KnownKey

_SILENCE_SECONDS = 90.0
_FAST_KEX = ("curve25519-sha256@libssh.org", "ecdh-sha2-nistp256")
_FAST_CIPHERS = ("aes128-gcm@openssh.com",)


def _first(preferred: tuple[str, ...], supported: tuple[str, ...]) -> tuple[str, ...]:
    return (*(k for k in preferred if k in supported), *(k for k in supported if k not in preferred))


_HANDLERS: dict[int, Any] = Transport._channel_handler_table  # type: ignore[attr-defined]  # noqa: SLF001 - made for subclasses


def _note_signal(channel: Any, message: Message) -> None:
    """Note which signal ended a command, which paramiko ignores; then let it handle the request."""
    request, _wants_reply = message.get_text(), message.get_boolean()
    if request == "exit-signal":
        channel.transport.signals[channel.chanid] = message.get_text()
    message.rewind()
    message.get_int()  # the channel's number, which paramiko has read already
    _HANDLERS[MSG_CHANNEL_REQUEST](channel, message)


class QuickTransport(Transport):
    """Subclass of paramiko's transport that prefers cheap algorithms and avoids its 0.1 s poll."""

    _active_check_timeout = 30.0
    _preferred_kex = _first(_FAST_KEX, Transport._preferred_kex)  # type: ignore[attr-defined]  # noqa: SLF001 - class attributes made for this
    _preferred_ciphers = _first(_FAST_CIPHERS, Transport._preferred_ciphers)  # type: ignore[attr-defined]  # noqa: SLF001

    _channel_handler_table: ClassVar[dict[int, Any]] = {**_HANDLERS, MSG_CHANNEL_REQUEST: _note_signal}

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.signals: dict[int, str] = {}
        """The name of the signal that ended a command, by the number of its channel."""

    def run(self) -> None:
        """Serve the connection; if its socket is a channel of a jump host that is gone, closing it fails, and may."""
        with contextlib.suppress(EOFError, OSError):
            super().run()

    def prefer_key_types(self, recorded: list[KnownKey]) -> None:
        """Prefer host key types that are recorded, so that the server presents a key that can be compared."""
        types = [t for key in recorded for t in _RSA_SIGNATURES.get(key.type, (key.type,))]
        self._preferred_keys = _first(tuple(types), self._preferred_keys)  # type: ignore[has-type]


_RSA_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


class QuickSocket(socket.socket):
    """TCP socket with immediate ACKs: two delayed ones cost 80 ms per connection."""

    _quick = getattr(socket, "TCP_QUICKACK", None)  # Linux only

    @classmethod
    def dial(cls, address: str, port: int, seconds: float) -> QuickSocket:
        """Connect to ``address``, IPv6 or IPv4, within ``seconds``."""
        inner = socket.create_connection((address, port), timeout=seconds)
        quick = cls(inner.family, inner.type, inner.proto, fileno=inner.detach())
        quick.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        quick.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        quick.limit_silence(_SILENCE_SECONDS)
        return quick

    def limit_silence(self, seconds: float) -> None:
        """Break the connection after ``seconds`` of silence: a node that loses power never closes it."""
        idle, interval = max(1, int(seconds / 3)), max(1, int(seconds / 9))
        counts = {"TCP_KEEPIDLE": idle, "TCP_KEEPINTVL": interval, "TCP_KEEPCNT": 6}
        for name, value in {**counts, "TCP_USER_TIMEOUT": int(1000 * seconds)}.items():
            if hasattr(socket, name):  # not every platform has all of them
                self.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive data and request an immediate ACK again: the kernel resets the option each time."""
        data = super().recv(size, flags)
        if self._quick is not None:
            with contextlib.suppress(OSError):  # closed in the meantime
                self.setsockopt(socket.IPPROTO_TCP, self._quick, 1)
        return data

    def close(self) -> None:
        """Shut down, then close: only a shutdown wakes up a reader that waits in ``recv``."""
        with contextlib.suppress(OSError):  # the other side closed first
            self.shutdown(socket.SHUT_RDWR)
        super().close()
