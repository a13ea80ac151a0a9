"""Byte stream of a running remote command; all transports over SSH or a local shell use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Stream(Protocol):
    """Running remote command."""

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""

    def read(self, seconds: float) -> bytes:
        """Return some bytes, empty at the end; raise `TimeoutError` after ``seconds`` of silence."""

    def ending(self) -> str:
        """Return how the command ended, after `read` returned nothing: "ended by signal 9"; empty if unknown."""

    def close(self) -> None:
        """Close the stream; whatever is still running on the node is killed there."""


OpenStream = Callable[[str], Stream]
"""Function that starts a command line on a node, under the user's login shell."""


def in_words(status: int) -> str:
    """Return how a process ended; ``status`` is as in `subprocess`, so that -9 is signal 9."""
    return f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
