"""PCI addresses of devices, which the model knows by their paths."""

from __future__ import annotations


def address(path: str) -> str:
    """Return the PCI address at the end of a device's path."""
    return path.rpartition("/")[2]
