"""``gpuops inventory``: show, check and export an inventory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._common.options import INVENTORY_HELP, NO_INVENTORY, completes, inventory_option, settings
from gpuops.cli._common.terminal import Commands

if TYPE_CHECKING:
    from gpuops.inventory import Inventory


@click.group(cls=Commands, package=__name__)
def command() -> None:
    """List, draw, check or export an inventory.

    Ansible can use gpuops' inventory: make this script executable and pass it to ansible -i.

    \b
      #!/bin/sh
      exec gpuops inventory list -i prod.yml --format json
    """  # noqa: D301 - click needs the character itself


def chooses(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add PATTERN and the options that name an inventory and some of its hosts."""
    hosts = completes("hosts")
    only = "Only these hosts: a pattern as for Ansible's --limit, or gpu[001-128]."
    verb = click.option("-l", "--limit", default="all", metavar="PATTERN", shell_complete=hosts, help=only)(verb)
    verb = inventory_option("source", help=INVENTORY_HELP)(verb)
    return click.argument("pattern", default="all", metavar="[PATTERN]", shell_complete=hosts)(verb)


def open_inventory(source: str | None, limit: str, pattern: str = "all") -> tuple[str, Inventory]:
    """Return the name of the inventory that ``-i`` or gpuops.yml names, and its selected hosts."""
    from gpuops.inventory import Inventory
    from gpuops.project import shortest
    from gpuops.store.place import VARIABLE

    project = settings()
    variable = "" if source else os.environ.get(VARIABLE, "")
    source = source or variable
    name = source or project.inventory
    if name is None:
        raise click.UsageError(NO_INVENTORY)
    folder = Path() if source else shortest(project.folder)
    by = VARIABLE if variable else ""
    inventory = Inventory.open(name, shortest(project.folder), folder=folder, by=by)
    return name, inventory.limit(limit).limit(pattern)
