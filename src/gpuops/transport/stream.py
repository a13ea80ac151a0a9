"""A started remote command as bytes in and out; every transport over SSH or a local shell has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Stream(Protocol):
    """A started remote command."""

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""

    def read(self, seconds: float) -> bytes:
        """Some bytes, empty at the end; `TimeoutError` after ``seconds`` of silence."""

    def close(self) -> None:
        """Hang up; what still runs on the node is killed there."""


OpenStream = Callable[[str], Stream]
"""Starts a command line on a node, under the user's login shell there."""
