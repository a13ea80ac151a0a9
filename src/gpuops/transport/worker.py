"""A script of ``node/`` that stays on a node and exchanges JSON with us, one object a line in either direction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuops.errors import LostError
from gpuops.transport.marked import MarkedStream


class Worker:
    """A running script, beside the agent on the same connection; it ends itself when its stream does.

    ``first_message`` is what the script sent about itself when it was ready.
    """

    def __init__(self, stream: MarkedStream, first_message: Mapping[str, Any]) -> None:
        self.node = stream.node
        self.first_message = first_message
        self._stream = stream

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message. `gpuops.errors.LostError` if the connection is gone."""
        self._stream.write(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return its next message; whatever else is printed before it is skipped.

        `TimeoutError` after ``seconds`` without one, `gpuops.errors.LostError` if the script has ended.
        """
        return receive(self._stream, seconds)

    def close(self) -> None:
        """Hang up; the script ends itself and all that it started. Safe to call twice."""
        self._stream.close()


def receive(stream: MarkedStream, seconds: float) -> dict[str, Any]:
    """Return the next message on ``stream``; see `Worker.receive`."""
    word = stream.word(seconds)
    if not word:
        raise LostError(stream.node, f"what ran there has ended{_quoted(stream.last_line())}")
    if word == b"none":
        raise LostError(stream.node, "there is no Python 3 on it")
    try:
        message: dict[str, Any] = json.loads(word)
    except ValueError as error:
        raise LostError(stream.node, f"what runs there sent an unreadable message ({error})") from error
    return message


def _quoted(line: str) -> str:
    return f": {line}" if line else ""
