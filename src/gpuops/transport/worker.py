"""Worker: a script of ``node/`` that stays on a node, spoken to in JSON: one object a line in either direction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gpuops.errors import LostError
from gpuops.transport.marked import MarkedStream


class Worker:
    """A running script, beside the agent on the same connection; it ends itself when its stream does.

    ``hello`` is what the script said of itself when it was ready.
    """

    def __init__(self, stream: MarkedStream, hello: Mapping[str, Any]) -> None:
        self.node = stream.node
        self.hello = hello
        self._stream = stream

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send one message; `gpuops.errors.LostError` where the connection is gone."""
        self._stream.write(json.dumps(message).encode() + b"\n")

    def hear(self, seconds: float) -> dict[str, Any]:
        """Its next message, whatever else is said before it being skipped.

        `TimeoutError` after ``seconds`` without one, `gpuops.errors.LostError` where the script has ended.
        """
        return hear(self._stream, seconds)

    def close(self) -> None:
        """Hang up; the script ends itself and all that it started. Safe to call twice."""
        self._stream.close()


def hear(stream: MarkedStream, seconds: float) -> dict[str, Any]:
    """The next message on ``stream``; see `Worker.hear`."""
    said = stream.word(seconds)
    if not said:
        raise LostError(stream.node, f"what ran there has ended{_quoted(stream.last_words())}")
    if said == b"none":
        raise LostError(stream.node, "there is no Python 3 on it")
    try:
        message: dict[str, Any] = json.loads(said)
    except ValueError as error:
        raise LostError(stream.node, f"what runs there said something unreadable ({error})") from error
    return message


def _quoted(words: str) -> str:
    return f", and said: {words}" if words else ""
