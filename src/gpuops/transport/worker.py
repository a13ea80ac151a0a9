"""Scripts of ``node/`` that keep running on a node and exchange JSON messages with gpuops, one per line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuops.errors import EndedError, LostError
from gpuops.transport.marked import MarkedStream

NO_PYTHON = "no Python 3 found on the node"


class Worker:
    """Running script beside the agent on the same connection; it exits when its stream is closed.

    ``first_message`` is what the script reported about itself when it was ready.
    """

    def __init__(self, stream: MarkedStream, first_message: Mapping[str, Any]) -> None:
        self.node = stream.node
        self.first_message = first_message
        self._stream = stream

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; raise `gpuops.errors.LostError` if the connection is broken."""
        self._stream.write(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the next message; skip any other output before it.

        Raise `TimeoutError` after ``seconds`` without one, `gpuops.errors.EndedError` if the script has ended, and
        `gpuops.errors.LostError` if the connection is broken.
        """
        return receive(self._stream, seconds)

    def close(self) -> None:
        """Close the stream; the script exits and ends everything that it started. Safe to call twice."""
        self._stream.close()


def receive(stream: MarkedStream, seconds: float) -> dict[str, Any]:
    """Return the next message on ``stream``; see `Worker.receive`."""
    word = stream.word(seconds)
    if not word:
        raise EndedError(stream.node, f"the worker {stream.ending() or 'ended'}{_quoted(stream.last_line())}")
    if word == b"none":
        raise LostError(stream.node, NO_PYTHON)
    try:
        message: dict[str, Any] = json.loads(word if word.startswith(b"{") else b"")
    except (ValueError, RecursionError) as error:
        raise LostError(stream.node, f"the worker script sent an unreadable message ({error})") from error
    return message


def _quoted(line: str) -> str:
    return f": {line}" if line else ""
