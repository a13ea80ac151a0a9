"""Ansible inventories: hosts, groups, connection settings, and what an operator declares about each host."""

from __future__ import annotations

from gpuops.inventory.bmc import Bmc
from gpuops.inventory.group import Group
from gpuops.inventory.host import GpuCable, Host, Port, Power, Psu
from gpuops.inventory.inventory import Inventory, find
from gpuops.inventory.ssh_options import ssh_options

__all__ = ["Bmc", "GpuCable", "Group", "Host", "Inventory", "Port", "Power", "Psu", "find", "ssh_options"]
