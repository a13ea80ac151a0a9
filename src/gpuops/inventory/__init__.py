"""Inventory: which nodes there are, how each is reached, and what is known about them by hand."""

from __future__ import annotations

from gpuops.inventory.group import Group
from gpuops.inventory.host import Host, Port, Power
from gpuops.inventory.inventory import Inventory, find

__all__ = ["Group", "Host", "Inventory", "Port", "Power", "find"]
