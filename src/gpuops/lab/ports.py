"""Consecutive loopback ports for the hosts of a lab."""

from __future__ import annotations

import socket

from gpuops.errors import InputError

ADDRESS = "127.0.0.1"
_BACKLOG = 128
_FIRST, _LAST = 20000, 32000  # below the ports that Linux gives to clients


def held(port: int) -> socket.socket:
    """A socket at ``port`` at which nobody listens: who connects is refused, and no other lab can have the port."""
    found = _bound(port)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)  # else Linux lets another one listen there
    return found


def listening(port: int) -> socket.socket:
    """A socket that listens at ``port``; nobody else can have the port from then on."""
    found = _bound(port)
    try:
        found.listen(_BACKLOG)
    except OSError:
        found.close()
        raise
    return found


def _bound(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of before may linger there
    found.settimeout(0)
    try:
        found.bind((ADDRESS, port))
    except OSError:
        found.close()
        raise
    return found


def listening_range(count: int, wanted: int | None) -> list[socket.socket]:
    """Sockets at ``count`` consecutive free ports, from ``wanted`` on if that is given, else `InputError`."""
    first = wanted or _FIRST
    while first + count <= (65536 if wanted else _LAST):
        found = _until_taken(first, count)
        if len(found) == count:
            return found
        for one in found:
            one.close()
        taken = first + len(found)
        if wanted:
            raise InputError(f"port {taken} is in use, and the lab was asked to use {first} to {first + count - 1}")
        first = taken + 1
    raise InputError(f"no {count} consecutive ports are free; --port-base names the first of a range")


def _until_taken(first: int, count: int) -> list[socket.socket]:
    found: list[socket.socket] = []
    for port in range(first, first + count):
        try:
            found.append(listening(port))
        except OSError:
            break
    return found
