"""Ansible inventories: hosts, groups, connection settings, and what an operator declares about each host."""

from __future__ import annotations

from gpuops.inventory.group import Group
from gpuops.inventory.host import Host, Port, Power
from gpuops.inventory.inventory import Inventory, find

__all__ = ["Group", "Host", "Inventory", "Port", "Power", "find"]
