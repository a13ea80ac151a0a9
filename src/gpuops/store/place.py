"""Where the store of a command is: the inventory that it names, or that is configured, decides."""

from __future__ import annotations

from collections.abc import Mapping

from gpuops.inventory.sources import find, names_hosts
from gpuops.project import Project, placed, shortest

VARIABLE = "GPUOPS_INVENTORY"
"""The variable of the environment that names an inventory."""


def configured_inventory(settings: Project, environment: Mapping[str, str]) -> str:
    """Return the inventory that GPUOPS_INVENTORY or gpuops.yml names, as a path from here; empty if neither does."""
    name, folder = settings.inventory or "", shortest(settings.folder)
    if environment.get(VARIABLE):
        return environment[VARIABLE]
    return str(find(name, folder, folder=folder)) if name and not names_hosts(name, folder) else name


def project_beside(settings: Project, inventory: str, environment: Mapping[str, str]) -> Project:
    """Return ``settings`` with the place of the store; ``inventory`` is the one that is named, as a path from here."""
    by = "" if inventory or not environment.get(VARIABLE) else VARIABLE
    inventory = inventory or configured_inventory(settings, environment)
    is_file = bool(inventory) and not names_hosts(inventory)
    return placed(settings, find(inventory, settings.folder, by=by).absolute() if is_file else None, environment)
