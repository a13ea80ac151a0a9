"""The hosts of a running lab, as programs that run on several of them see them."""

from __future__ import annotations

from typing import Protocol

from gpuops.lab.model import Node


class Hosts(Protocol):
    """All hosts by name."""

    def node(self, name: str) -> Node:
        """Return the current state of a host; raise `KeyError` if there is none of that name."""

    def note(self, name: str, line: str) -> None:
        """Add a line to a host's audit log."""

    def age_nic(self, name: str, nic: str, seconds: float) -> None:
        """Add what the faults of a NIC count in that many seconds of use."""

    def load(self, name: str, *, on: bool) -> None:
        """Make a host's GPUs show that they compute, or that they are idle again."""
