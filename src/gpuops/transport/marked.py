"""Stream that ignores everything except lines with a random mark, such as the output of banners and login scripts.

For example, if the lines ``Welcome!`` and ``MARK hello`` arrive, the first word is ``hello``.
"""

from __future__ import annotations

import re
import time

from gpuops.errors import LostError
from gpuops.transport.stream import Stream

_NOISE_CAP_BYTES = 1024 * 1024
_LAST_LINE_BYTES = 160
_WORD = re.compile(rb"\w+")


class MarkedStream:
    """Stream of a program that prints lines ``MARK word`` or ``MARK {json}``, some of them followed by raw bytes."""

    def __init__(self, node: str, stream: Stream, mark: str) -> None:
        self.node = node
        self.stream = stream
        self._mark = mark.encode() + b" "
        self._seen = bytearray()
        self._read_to = 0

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""
        self.stream.write(data)

    def word(self, seconds: float) -> bytes:
        """Return the rest of the next marked line; empty at the end; raise `TimeoutError` after ``seconds``."""
        ends = time.monotonic() + seconds
        while (word := self._next_word()) is None:
            if len(self._seen) > _NOISE_CAP_BYTES:
                raise LostError(self.node, "its login shell prints more than 1 MiB before the agent starts")
            data = self.stream.read(max(0.0, ends - time.monotonic()))
            if not data:
                return b""
            self._seen += data
        return word

    def _next_word(self) -> bytes | None:
        """Return the rest of the next marked line, and drop all up to its end; None if there is none yet.

        Each byte is looked at once or twice: a node must not decide how long this takes.
        """
        while (end := self._seen.find(b"\n", self._read_to)) >= 0:
            word = self._rest(bytes(self._seen[self._read_to : end]))
            self._read_to = end + 1
            if word:
                del self._seen[: self._read_to]
                self._read_to = 0
                return word
        return None

    def _rest(self, line: bytes) -> bytes:
        """Return the word or the JSON object after the mark, which other output may precede; empty if there is none."""
        if line.endswith(b"}"):
            rest = line.partition(self._mark + b"{")[2]
            return b"{" + rest if rest else b""
        _, mark, rest = line.rpartition(self._mark)
        return rest if mark and _WORD.fullmatch(rest) else b""

    def some(self, most: int, seconds: float) -> bytes:
        """Return up to ``most`` bytes, none at the end; raise `TimeoutError` after ``seconds`` of silence."""
        if not self._seen:
            self._seen += self.stream.read(seconds)
        taken = bytes(self._seen[:most])
        del self._seen[:most]
        self._read_to = 0
        return taken

    def last_line(self) -> str:
        """Return the last line without a mark, for a message; empty if there is none."""
        lines = bytes(self._seen).strip().splitlines()
        return lines[-1][:_LAST_LINE_BYTES].decode("utf-8", "replace") if lines else ""

    def ending(self) -> str:
        """Return how the program ended, in words; empty if it is unknown."""
        return self.stream.ending()

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()
