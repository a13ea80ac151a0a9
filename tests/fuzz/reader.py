"""A reader of foreign bytes: what reads them, what it is usually given, and what must hold for any other input."""

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpuops.errors import GpuopsError

SEEDS = pathlib.Path(__file__).parent / "seeds"
"""Inputs that once broke a reader: a folder for each."""
LONGEST_CPU_SECONDS = 10.0
"""Time of one input. The slowest usual one takes half a second, and inputs are at most 300 KB long."""
_NUMBERS = itertools.count()


class SlowError(BaseException):
    """One input took too long; no reader may catch this."""


@dataclass(frozen=True)
class Reader:
    """``read(content, folder)`` reads ``content`` in an empty ``folder``; ``usual`` are inputs that it accepts.

    ``words`` mean something in its language.
    """

    name: str
    read: Callable[[bytes, pathlib.Path], object]
    usual: Callable[[], list[bytes]]
    words: tuple[bytes, ...] = ()

    @property
    def kept(self) -> list[pathlib.Path]:
        """The inputs that once broke it."""
        return sorted(path for path in (SEEDS / self.name).glob("*") if path.is_file())


READERS: dict[str, Reader] = {}


def reader(*usual, words=""):
    """Make a reader of a function; ``usual`` are texts, or one function that returns a list of bytes."""

    def register(read):
        name = read.__name__.strip("_").replace("_", "-")
        seeds = usual[0] if callable(usual[0]) else lambda: [text.encode() for text in usual]
        READERS[name] = Reader(name, read, seeds, tuple(word.encode() for word in words.split()))
        return read

    return register


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Raise `SlowError` after `LONGEST_CPU_SECONDS` of this process's own time, or when it waits that long."""

    def give_up(*_):
        raise SlowError(f"more than {LONGEST_CPU_SECONDS:g} s")

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 6))
    before = {number: signal.signal(number, give_up) for number, _, _ in timers}
    for _, timer, factor in timers:
        signal.setitimer(timer, LONGEST_CPU_SECONDS * factor)
    try:
        yield
    finally:
        for number, timer, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def attempt(one: Reader, content: bytes) -> None:
    """Let the reader read ``content``; every exception but gpuops' own errors is a fault, and so is a slow answer."""
    folder = pathlib.Path(tempfile.gettempdir(), f"gpuops-fuzz-{os.getpid()}-{next(_NUMBERS)}")
    folder.mkdir(mode=0o700)
    try:
        with limited(), contextlib.suppress(GpuopsError):
            one.read(content, folder)
    finally:
        shutil.rmtree(folder)


def place_of(error: BaseException) -> str:
    """Return the kind of an error and the last line of gpuops that it passed: faults at one place are one fault."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/fuzz/" not in frame.filename]
    own = [frame for frame in frames if "/gpuops/" in frame.filename or "/playbooks/" in frame.filename] or frames
    where = f"{own[-1].filename.rpartition('/src/')[2]}:{own[-1].lineno}" if own else "?"
    return f"{type(error).__name__} at {where}"
