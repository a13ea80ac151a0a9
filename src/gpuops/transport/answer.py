"""Reader of the agent's answer, in steps and with bounds: what a node sends must not decide how much memory it takes.

The compressed answer is never kept, and an output is decoded while it arrives.
"""

from __future__ import annotations

import codecs
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence

from gpuops.errors import LostError
from gpuops.shell import Completed, NodeQuestion

MOST_BYTES = 12 << 20
"""Length of the outputs of one batch: one of 8 MiB, the most of a single question, and half of that for the others.

CPython copies a text while it grows, so a node takes at most twice that, 24 MiB. A choice: 32 nodes that all flood take
768 MiB.
"""
_STEP_BYTES = 64 << 10
_HEADER_BYTES = 200
_SLOWEST_SECONDS_PER_MIB = 2.0
"""A link of 4 Mbit/s; a node that sends an announced answer more slowly than that is given up."""


def read_answer(
    node: str,
    questions: Sequence[NodeQuestion],
    packed: Callable[[int, float], bytes],
    size: int,
    silence_seconds: float,
) -> list[Completed]:
    """Return one answer per question from ``size`` bytes of the agent's zlib stream.

    ``packed(most, seconds)`` returns the next bytes of it, none at the end. Raise `LostError` if the answer is
    incomplete, malformed, larger than `MOST_BYTES`, or too slow; `TimeoutError` after ``silence_seconds`` of silence.
    """
    if size > MOST_BYTES + _STEP_BYTES:  # noise hardly grows when it is compressed
        raise LostError(node, f"the answer is longer than {MOST_BYTES >> 20} MiB")
    unpacked = _Unpacked(node, packed, size, silence_seconds)
    try:
        answers = list(_answers(node, questions, unpacked))
        unpacked.check_end()
    except (ValueError, zlib.error) as error:
        raise LostError(node, f"the answer is malformed ({error})") from error
    return answers


class _Unpacked:
    """The uncompressed bytes of an answer, a few at a time."""

    def __init__(self, node: str, packed: Callable[[int, float], bytes], size: int, silence_seconds: float) -> None:
        self._node = node
        self._packed = packed
        self._size = self._left = size
        self._silence_seconds = silence_seconds
        self._ends = time.monotonic() + silence_seconds + _SLOWEST_SECONDS_PER_MIB * (size >> 20)
        self._unpacker = zlib.decompressobj()
        self._unread = b""
        self._count = 0

    def some(self, most: int) -> bytes:
        """Return up to ``most`` bytes, at least one; raise `ValueError` at the end."""
        data = self._unread or self._unpack()
        self._unread = data[most:]
        return data[:most]

    def line(self) -> str:
        """Return the next line, which must be short."""
        line = b""
        while b"\n" not in line:
            if len(line) > _HEADER_BYTES:
                raise ValueError("a header is too long")
            line += self.some(_HEADER_BYTES)
        line, _, rest = line.partition(b"\n")
        self._unread = rest + self._unread
        return line.decode()

    def check_end(self) -> None:
        """Raise `ValueError` unless everything was read."""
        if self._unread or (not self._unpacker.eof and self._unpack(at_end=True)):
            raise ValueError("more bytes than its headers announce")
        if self._left or self._unpacker.unused_data:
            raise ValueError("bytes after its end")

    def _unpack(self, *, at_end: bool = False) -> bytes:
        while not self._unpacker.eof:
            data = self._unpacker.unconsumed_tail or self._receive()
            unpacked = self._unpacker.decompress(data, _STEP_BYTES)
            self._count += len(unpacked)
            if self._count > MOST_BYTES + _STEP_BYTES:
                raise LostError(self._node, f"the answer is longer than {MOST_BYTES >> 20} MiB when it is unpacked")
            if unpacked:
                return unpacked
            if not data:
                raise ValueError("incomplete")
        if at_end:
            return b""
        raise ValueError("shorter than its headers announce")

    def _receive(self) -> bytes:
        """Return compressed bytes; none after the last of them."""
        if not self._left:
            return b""
        data = self._packed(min(self._left, _STEP_BYTES), self._silence_seconds)
        self._left -= len(data)
        if not data:
            got = self._size - self._left
            raise LostError(self._node, f"the connection broke in the middle of the answer, after {got} bytes")
        if time.monotonic() > self._ends:
            raise LostError(self._node, f"sends its answer too slowly: {self._left} bytes are left")
        return data


def _answers(node: str, questions: Sequence[NodeQuestion], unpacked: _Unpacked) -> Iterator[Completed]:
    room = MOST_BYTES
    for question in questions:
        exit_, seconds, timed_out, truncated, state, out_length, err_length = unpacked.line().split(" ")
        out, out_is_whole = _text(unpacked, _length(out_length), room)
        room -= sys.getsizeof(out)
        err, err_is_whole = _text(unpacked, _length(err_length), room)
        room -= sys.getsizeof(err)
        yield Completed(
            node,
            question,
            exit=int(exit_),
            out=out,
            err=err,
            seconds=float(seconds),
            timed_out=timed_out == "1",
            truncated=truncated == "1" or not (out_is_whole and err_is_whole),
            state="" if state == "-" else state,
        )


def _length(digits: str) -> int:
    if not digits.isdigit() or len(digits) > 9:
        raise ValueError(f"a length of {digits[:20]}")
    return int(digits)


def _text(unpacked: _Unpacked, length: int, room: int) -> tuple[str, bool]:
    """Return the next ``length`` bytes as text, and whether all of it fits into ``room`` bytes of memory.

    Python stores each character of a text as wide as its widest. So a text that would not fit because of a few
    characters beyond Latin-1 gets ``?`` in their place.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, widest, is_whole = "", 1, True
    while length:
        data = unpacked.some(min(length, _STEP_BYTES))
        length -= len(data)
        piece = decoder.decode(data, final=not length)
        width = max(widest, _width(piece))
        if width > widest and (len(text) + len(piece)) * width > room // 2:
            piece, width = piece.encode("latin-1", "replace").decode("latin-1"), widest
        if is_whole := is_whole and (len(text) + len(piece)) * width <= room:
            widest = width
            text += piece
    return text, is_whole


def _width(piece: str) -> int:
    """Return how many bytes CPython takes for the widest character."""
    if piece.isascii():
        return 1
    widest = max(piece)
    return 1 if widest < "\u0100" else 2 if widest < "\U00010000" else 4
