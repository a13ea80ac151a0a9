"""Inventory: which nodes there are, how each is reached, and what is known about them by hand."""

from __future__ import annotations

from gpuops.inventory.host import Host, Port, Power

__all__ = ["Host", "Port", "Power"]
