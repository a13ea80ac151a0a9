"""The hosts of a running lab, as what runs on several of them at once meets them."""

from __future__ import annotations

from typing import Protocol

from gpuops.lab.model import Node


class Hosts(Protocol):
    """All hosts by name."""

    def node(self, name: str) -> Node:
        """What a host is at present; `KeyError` where there is none of that name."""

    def note(self, name: str, line: str) -> None:
        """Write into a host's audit log."""

    def age_nic(self, name: str, nic: str, seconds: float) -> None:
        """Add the symbol errors that a slow NIC counts in so many seconds of use."""

    def load(self, name: str, *, on: bool) -> None:
        """Let a host's GPUs show that they compute, or that they rest again."""
