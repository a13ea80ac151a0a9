"""The project that the command line works in: the current folder's, or that of the nearest gpuops.yml above it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuops.catalogue import Catalogue
    from gpuops.inventory import Inventory
    from gpuops.project import Project


def project_folder() -> Path:
    """The project's folder, whole: content and journals name files by it, wherever the next command runs."""
    from gpuops.project import find_project

    return find_project(Path.cwd())


def settings() -> Project:
    """The project's settings."""
    from gpuops.project import load_project

    return load_project(project_folder())


def catalogue() -> Catalogue:
    """The project's checks, profiles, playbooks, tasks and targets, and the built-in ones."""
    from gpuops.catalogue import Catalogue

    return Catalogue(project_folder())


def open_inventory(argument: str | None, project: Project) -> Inventory:
    """What ``-i`` names, from here; without it what gpuops.yml names, from its folder."""
    from gpuops.inventory import Inventory

    name, folder = _inventory_of(argument, project)
    return Inventory.open(name, shortest(project.folder), folder=folder)


def find_inventory(argument: str | None, project: Project) -> Path:
    """The file or folder of that inventory."""
    from gpuops.inventory.inventory import find

    name, folder = _inventory_of(argument, project)
    return find(name, shortest(project.folder), folder=folder)


def _inventory_of(argument: str | None, project: Project) -> tuple[str, Path]:
    """The inventory's name, and the folder from which it is a path."""
    from gpuops.errors import InputError

    if argument:
        return argument, Path()
    if not project.inventory:
        raise InputError("name an inventory: -i FILE, or `inventory:` in gpuops.yml")
    return project.inventory, shortest(project.folder)


def shortest(path: Path) -> Path:
    """The shorter of the path from here and the whole path: how messages name it."""
    return Path(min(os.path.relpath(path), str(path), key=len))
