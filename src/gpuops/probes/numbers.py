"""Numbers at the head of what a node says: ``32.0 GT/s PCIe``, ``400 Gb/sec (4X NDR)``, ``-1``."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\s*([-+]?\d{1,15}(?:\.\d{1,12})?)(?![\d.])", re.ASCII)


def number(text: str | None) -> float | None:
    """The decimal number that ``text`` starts with, or None."""
    found = _NUMBER.match(text or "")
    return float(found[1]) if found else None


def integer(text: str | None) -> int | None:
    """The whole number that ``text`` starts with, or None."""
    value = number(text)
    return int(value) if value is not None and value.is_integer() else None
