"""Questions to a node (`Command`, `Files`, `Resources`) and the answer (`Completed`); only here is shell quoting."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Literal

from gpuops.errors import InputError

Become = Literal["never", "if-refused", "if-possible", "always"]
Lane = Literal["", "nvidia"]


@dataclass(frozen=True)
class Command:
    """One command to run on a node.

    ``words`` are the arguments exactly as the program receives them; nothing is ever split or expanded.
    ``become``: ``if-refused`` runs the command as the ordinary user first, and under ``sudo -n`` if that failed;
    ``if-possible`` runs it as both, and the ordinary user's answer counts only if sudo refuses.
    ``lane``: commands in the same named lane run one after another (``nvidia``: those that open the driver), all others
    in parallel. ``root_words`` replace ``words`` for root, so that a sudoers file can name one plain program.
    Two commands that differ only in timeout or lane are equal.
    """

    words: tuple[str, ...]
    timeout_seconds: float = field(default=10.0, compare=False)
    become: Become = "never"
    lane: Lane = field(default="", compare=False)
    root_words: tuple[str, ...] = ()
    stdin: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Reject NUL characters: no argument of a program can contain one."""
        for word in (*self.words, *self.root_words):
            if "\0" in word:
                raise InputError(f"{word!r} cannot be an argument of a command: it contains a NUL character")

    def __str__(self) -> str:
        """Return the command quoted for a shell."""
        return shlex.join(self.words)


@dataclass(frozen=True)
class Files:
    """Small text files to read, as shell globs with ``*`` inside a path segment.

    The answer's text is ``path NUL content NUL`` for each file. The content of a link to a directory is the link's
    target, that of a directory is empty; missing and unreadable files are omitted. At most ``limit_bytes`` of each file
    are read.
    """

    globs: tuple[str, ...]
    limit_bytes: int = 65536
    timeout_seconds: float = field(default=10.0, compare=False)

    def __str__(self) -> str:
        """Return the shell command that shows the same."""
        return "cat " + " ".join(self.globs)


@dataclass(frozen=True)
class Resources:
    """Redfish resources of the node's BMC, as paths in which ``*`` stands for every member of a collection.

    The BMC is asked by the control machine, never by the node. The answer's text is one JSON object, ``{path: body}``;
    a resource that the BMC does not have is omitted. ``/Entries/*`` omits members that ``/Entries`` contains in full.
    The exit status is 0, 127 if the inventory names no BMC, or 1 if the BMC refused or did not answer as it must.
    """

    paths: tuple[str, ...]
    timeout_seconds: float = field(default=10.0, compare=False)

    def __str__(self) -> str:
        """Return the source of the answer."""
        return "the BMC (Redfish)"


NodeQuestion = Command | Files
Question = NodeQuestion | Resources


@dataclass(frozen=True)
class Completed:
    """Answer to one question.

    ``exit`` is the exit status (128 + signal if killed; 127 if there is no such program). ``state`` is the process
    state letter of a command that survived its deadline and SIGKILL (``D``: stuck in the kernel), or ``not-asked`` if
    the command did not run, because its program hung before it in the same lane.
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
        """True if the program is not installed on the node."""
        return self.exit == 127

    @property
    def not_asked(self) -> bool:
        """True if the command did not run, because an earlier one of the same program hung."""
        return self.state == "not-asked"

    def last_line(self, limit: int = 160) -> str:
        """Return the last line that the command printed, for a message."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return lines[-1][:limit] if lines else ""

    last_words = last_line  # the name until 0.1


def read_files(text: str) -> dict[str, str]:
    """Return the answer to `Files` as ``{path: content}``; a truncated answer lacks its last, incomplete file."""
    parts = text.split("\0")
    return dict(zip(parts[:-1:2], parts[1:-1:2], strict=False))
