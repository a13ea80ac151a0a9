"""Data of a collective, sent before ring.py: the bytes that each rank sends and must receive.

Python 3.6 grammar, standard library only. The ring is NCCL's: reduce-scatter, then all-gather. Numbers are lanes of 64
bits in one large integer, so that Python adds a slice at the speed of C; they are so small that no lane of a sum
overflows into the next. The content depends on the index, and each rank contributes its own multiple of it.
"""
import collections
import struct

SLICE_BYTES = 131072
LANE_BYTES = 8
LANES = 8191        # a prime, so that no two slices are equal
PATTERN = b"".join(struct.pack("<Q", (lane + 1) * 2654435761 % 2**32) for lane in range(LANES)) * 4

Slice = collections.namedtuple("Slice", "length own expected passed_on")
"""Incoming slice: its length, the integer to add, the bytes expected after that, and whether it is passed on."""
Transfer = collections.namedtuple("Transfer", "shift first slices")
"""Slices to send first to the rank ``shift`` ahead, and the slices to receive from the rank ``shift`` behind."""


def transfers_of(operation, rank, ranks, size) -> list:
    """Return the transfers of ``rank`` in one iteration of ``operation``; ``size`` is nccl-tests' size in bytes."""
    chunk = size // ranks // LANE_BYTES * LANE_BYTES
    if operation == "send_recv":
        return [Transfer(1, sent(0, chunk * ranks, rank), awaited(0, chunk * ranks, (rank - 1) % ranks + 1))]
    if operation == "all_to_all":
        return [
            Transfer(
                shift,
                sent((rank + shift) % ranks * chunk, chunk, rank),
                awaited(rank * chunk, chunk, (rank - shift) % ranks + 1),
            )
            for shift in range(1, ranks)
        ]
    steps = RINGS[operation](rank, ranks)
    slices = [
        piece
        for number, (index, times, own) in enumerate(steps)
        for piece in awaited(index * chunk, chunk, times, own, number < len(steps) - 1)
    ]
    return [Transfer(1, sent(rank * chunk, chunk, rank), slices)]


def scatter_steps(rank, ranks) -> list:
    """Return (chunk, expected multiple of the content or 0, multiple that this rank adds) in order of arrival."""
    steps = [((rank - 1 - step) % ranks, 0, rank + 1) for step in range(ranks - 1)]
    return steps[:-1] + [((rank + 1) % ranks, total(ranks), rank + 1)]


def gather_steps(rank, ranks) -> list:
    return [(index, index + 1, 0) for index in ((rank - 1 - step) % ranks for step in range(ranks - 1))]


def reduce_steps(rank, ranks) -> list:
    return scatter_steps(rank, ranks) + [((rank - step) % ranks, total(ranks), 0) for step in range(ranks - 1)]


RINGS = {"all_reduce": reduce_steps, "all_gather": gather_steps, "reduce_scatter": scatter_steps}


def total(ranks) -> int:
    return ranks * (ranks + 1) // 2


def sent(offset, length, rank) -> list:
    return [multiple(at, size, rank + 1).to_bytes(size, "little") for at, size in pieces(offset, length)]


def awaited(offset, length, times, own=0, passed_on=False) -> list:
    return [
        Slice(
            size,
            multiple(at, size, own),
            multiple(at, size, times).to_bytes(size, "little") if times else None,
            passed_on,
        )
        for at, size in pieces(offset, length)
    ]


def pieces(offset, length) -> list:
    """Return (offset, length) of each slice."""
    return [(at, min(SLICE_BYTES, offset + length - at)) for at in range(offset, offset + length, SLICE_BYTES)]


def multiple(offset, length, times) -> int:
    """Return the content from ``offset`` on, multiplied by ``times``."""
    start = offset % (LANES * LANE_BYTES)
    return int.from_bytes(PATTERN[start:start + length], "little") * times


def digest(data, piece) -> tuple:
    """Add this rank's own data to a slice; return the result and whether it is correct."""
    if piece.own:
        try:
            data = (int.from_bytes(data, "little") + piece.own).to_bytes(len(data), "little")
        except OverflowError:       # only with corrupt data
            return data, False
    return data, piece.expected is None or data == piece.expected
