"""Answer: what one program prints, and the exit status it ends with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuops.lab.model import Changes, Node


@dataclass(frozen=True)
class Answer:
    """Standard output, standard error and exit status; what the host ``becomes``, if the program changed it.

    ``rereads``: systemd reads the host's units again.
    """

    out: str = ""
    err: str = ""
    code: int = 0
    becomes: Changes | None = None
    reboots: bool = False
    rereads: bool = False

    @property
    def printed(self) -> dict[str, object]:
        """What a shim needs to know."""
        return {"out": self.out, "err": self.err, "code": self.code}


class Tool(Protocol):
    """A program: its arguments and whether root runs it, to what it says about a node."""

    def __call__(self, node: Node, words: Sequence[str], *, root: bool) -> Answer:
        """The program's answer."""
