"""Ansible inventories: hosts, groups, connection settings, and what an operator declares about each host.

Names are loaded on first use: a report that only folds names of nodes reads no inventory.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuops.inventory.bmc import Bmc
    from gpuops.inventory.group import Group
    from gpuops.inventory.host import GpuCable, Host, Port, Power, Psu
    from gpuops.inventory.inventory import Inventory
    from gpuops.inventory.sources import find

__all__ = ["Bmc", "GpuCable", "Group", "Host", "Inventory", "Port", "Power", "Psu", "find"]

_HOMES = {
    "Bmc": "bmc",
    "Group": "group",
    **dict.fromkeys(("GpuCable", "Host", "Port", "Power", "Psu"), "host"),
    "Inventory": "inventory",
    "find": "sources",
}


def __getattr__(name: str) -> Any:
    """Load a name from the module that defines it (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
