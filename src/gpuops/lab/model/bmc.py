"""The baseboard management controller of a server, with its power supplies and fans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bmc:
    """``supplies`` and ``fans`` are numbered from 1. ``events`` are the log's rows, without their number and date.

    A ``redundancy`` sensor exists only if its text is set.
    """

    supplies: int = 6
    fans: int = 10
    lost: frozenset[int] = frozenset()
    standing: frozenset[int] = frozenset()
    redundancy: str = "Fully Redundant"
    events: tuple[str, ...] = ()
    overflow: bool = False
