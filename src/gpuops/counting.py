"""Counts with their nouns: ``1 node``, ``3 nodes``."""

from __future__ import annotations


def format_count(count: int, noun: str) -> str:
    """Return ``count`` with ``noun``, which takes an s unless there is one."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
