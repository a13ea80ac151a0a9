"""Transports: each runs questions on one node, over one type of connection, and returns the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpuops.shell import Command, Completed, Question


class Transport(Protocol):
    """One connection to one node. Everything raises `gpuops.errors.NodeError` if the node cannot be reached."""

    def run(self, command: Command) -> Completed:
        """Run one command and wait for it."""

    def batch(self, questions: Sequence[Question]) -> list[Completed]:
        """Ask everything in one round trip; one answer for each question, in their order."""

    def put(self, text: bytes, path: str, mode: int) -> None:
        """Write a file atomically, with its mode from the first byte."""

    def get(self, path: str) -> bytes:
        """Read a file."""

    def close(self) -> None:
        """Let go of the connection; safe to call twice."""
