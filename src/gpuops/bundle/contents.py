"""What is in a bundle: its files, and what was left out, with the reason as a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Reason = Literal["not_installed", "absent", "refused", "timed_out", "too_large", "user_data", "failed"]


@dataclass(frozen=True)
class File:
    """One file of a bundle; ``command`` is what produced it, with its ``exit`` status if it was a command of the node.

    ``removed`` counts what was taken out of it, by kind.
    """

    name: str
    content: bytes
    command: str
    exit: int | None = None
    needs_root: bool = False
    removed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LeftOut:
    """Something that a bundle lacks: ``what`` is a file, or a part of one."""

    what: str
    reason: Reason
    why: str


@dataclass(frozen=True)
class Contents:
    """Files of one node, and what was left out."""

    files: tuple[File, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __add__(self, other: Contents) -> Contents:
        """Return both together."""
        return Contents(self.files + other.files, self.left_out + other.left_out)


NEVER = tuple(
    LeftOut(what, "user_data", "gpuops never asks for it")
    for what in (
        "environment variables",
        "command lines of processes",
        "shell history",
        "authorized keys",
        "passwords of the inventory",
    )
)
"""What no bundle contains, listed in every manifest."""
