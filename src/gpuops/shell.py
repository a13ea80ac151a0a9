"""Command: words, quoted once, in one place. Completed: what came back."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Literal

from gpuops.errors import InputError

Become = Literal["never", "if-refused", "always"]
Lane = Literal["", "nvidia"]


@dataclass(frozen=True)
class Command:
    """One thing to ask of a node.

    ``words`` are arguments exactly as the program shall see them; nothing is ever split or expanded.
    ``become``: ``if-refused`` runs plainly first and again under ``sudo -n`` when that failed.
    ``lane``: commands of one named lane run one after another (``nvidia``: those that open the driver), all others
    side by side. ``root_words`` are what is run as root instead, so that a sudoers file can name one plain program.
    Two commands that differ only in their time or lane ask the same.
    """

    words: tuple[str, ...]
    timeout_seconds: float = field(default=10.0, compare=False)
    become: Become = "never"
    lane: Lane = field(default="", compare=False)
    root_words: tuple[str, ...] = ()
    stdin: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """No program can be given a NUL: it ends a word."""
        for word in (*self.words, *self.root_words):
            if "\0" in word:
                raise InputError(f"{word!r} cannot be a word of a command: it holds a NUL character")

    def __str__(self) -> str:
        """The command as a shell would have to be told."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class Files:
    """Small text files to read, as shell globs with ``*`` inside a path segment.

    The answer's text is ``path NUL content NUL`` for each: a link to a folder gives the link's target, a folder an
    empty content, what is absent or unreadable nothing. At most ``limit_bytes`` of each file are read.
    """

    globs: tuple[str, ...]
    limit_bytes: int = 65536
    timeout_seconds: float = field(default=10.0, compare=False)

    def __str__(self) -> str:
        """What a person would type to see the same."""
        return "cat " + " ".join(self.globs)


Question = Command | Files


@dataclass(frozen=True)
class Completed:
    """What came back for one question.

    ``exit`` is the exit status (128 + signal if killed; 127 if there is no such program). ``state`` is the kernel's
    process state letter where a command outlived its deadline and its kill (``D``: stuck in the kernel).
    """

    node: str
    question: Question
    exit: int
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    timed_out: bool = False
    truncated: bool = False
    state: str = ""

    @property
    def missing(self) -> bool:
        """The program is not installed on the node."""
        return self.exit == 127

    def last_line(self, limit: int = 160) -> str:
        """Return the last line that the command printed, for a message."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1][:limit] if lines else ""

    last_words = last_line  # the name until 0.1


def read_files(text: str) -> dict[str, str]:
    """The answer to `Files` as ``{path: content}``; a cut answer loses its last, incomplete file."""
    parts = text.split("\0")
    return dict(zip(parts[:-1:2], parts[1:-1:2], strict=False))
