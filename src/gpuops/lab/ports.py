"""Consecutive loopback ports for the hosts of a lab."""

from __future__ import annotations

import socket

from gpuops.errors import InputError

ADDRESS = "127.0.0.1"
_BACKLOG = 128
_FIRST, _LAST = 20000, 32000  # below the ports that Linux assigns to clients


def held(port: int) -> socket.socket:
    """Return a socket that reserves ``port`` without listening: it refuses connections, and no other lab gets it."""
    sock = _bound(port)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # else Linux lets another one listen there
    return sock


def listening(port: int) -> socket.socket:
    """Return a socket that listens on ``port``."""
    sock = _bound(port)
    try:
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _bound(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # old connections may linger there
    sock.settimeout(0)
    try:
        sock.bind((ADDRESS, port))
    except OSError:
        sock.close()
        raise
    return sock


def listening_range(count: int, port_base: int | None) -> list[socket.socket]:
    """Return sockets that listen on ``count`` consecutive ports, the first at ``port_base`` if it is set.

    Raise `InputError` if they are not free.
    """
    first = port_base or _FIRST
    while first + count <= (65536 if port_base else _LAST):
        sockets = _until_taken(first, count)
        if len(sockets) == count:
            return sockets
        for one in sockets:
            one.close()
        taken = first + len(sockets)
        if port_base:
            raise InputError(f"port {taken} is in use, but the lab needs ports {first} to {first + count - 1}")
        first = taken + 1
    raise InputError(f"no {count} consecutive ports are free; set the first of a range with --port-base")


def _until_taken(first: int, count: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    for port in range(first, first + count):
        try:
            sockets.append(listening(port))
        except OSError:
            break
    return sockets
