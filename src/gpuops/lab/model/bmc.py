"""The baseboard management controller of a server, with its power supplies and fans."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bmc:
    """``supplies`` and ``fans`` are numbered from 1. ``events`` are the log's rows, without their number and date.

    A ``redundancy`` sensor exists only if its text is set. Over Redfish it has the newer schema if ``subsystems``, and
    answers every request with 401 if ``refuses_login``.
    """

    supplies: int = 6
    fans: int = 10
    lost: frozenset[int] = frozenset()
    standing: frozenset[int] = frozenset()
    redundancy: str = "Fully Redundant"
    events: tuple[str, ...] = ()
    overflow: bool = False
    subsystems: bool = True
    refuses_login: bool = False

    def fan_rpm(self, number: int) -> int:
        """Return the speed of a fan, in revolutions per minute."""
        return 0 if number in self.standing else 8900 + number * 70
