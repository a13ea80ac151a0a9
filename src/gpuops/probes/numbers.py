"""Parsers of a number at the start of a text: ``32.0 GT/s PCIe`` is 32.0, ``400 Gb/sec (4X NDR)`` is 400."""

from __future__ import annotations

import re
from functools import lru_cache

_NUMBER = re.compile(r"\s*([-+]?\d{1,15}(?:\.\d{1,12})?)(?![\d.])", re.ASCII)


@lru_cache(maxsize=4096)  # the parts of a machine, and the machines of a cluster, report much the same values
def number(text: str | None) -> float | None:
    """Return the decimal number that ``text`` starts with, or None."""
    match = _NUMBER.match(text or "")
    return float(match[1]) if match else None


def integer(text: str | None) -> int | None:
    """Return the whole number that ``text`` starts with, or None."""
    value = number(text)
    return int(value) if value is not None and value.is_integer() else None
