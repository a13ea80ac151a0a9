"""The output of a program, and its exit status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuops.lab.model import Changes, Node


@dataclass(frozen=True)
class Answer:
    """Standard output, standard error and exit status; ``becomes`` is the host's state if the program changed it.

    ``rereads``: systemd reloads the host's units.
    """

    out: str = ""
    err: str = ""
    code: int = 0
    becomes: Changes | None = None
    reboots: bool = False
    rereads: bool = False

    @property
    def printed(self) -> dict[str, object]:
        """The values that a shim needs."""
        return {"out": self.out, "err": self.err, "code": self.code}


class Tool(Protocol):
    """A program: from its arguments, and whether root runs it, to its output for a node."""

    def __call__(self, node: Node, words: Sequence[str], *, root: bool) -> Answer:
        """Return the program's answer."""
