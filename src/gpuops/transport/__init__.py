"""Transports, each of which sends questions to one node over one type of connection and returns the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpuops.shell import Command, Completed, Question


class Transport(Protocol):
    """Connection to one node. All methods raise `gpuops.errors.NodeError` if the node cannot be reached."""

    def run(self, command: Command) -> Completed:
        """Run one command and wait for it."""

    def batch(self, questions: Sequence[Question]) -> list[Completed]:
        """Ask all questions in one round trip; return one answer per question, in order."""

    def put(self, text: bytes, path: str, mode: int) -> None:
        """Write a file atomically, with its mode from the first byte."""

    def get(self, path: str) -> bytes:
        """Read a file."""

    def close(self) -> None:
        """Close the connection; safe to call twice."""
