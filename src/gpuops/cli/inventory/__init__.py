"""``gpuops inventory``: what the inventory says, shown, checked, and handed to Ansible."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import settings
from gpuops.cli._terminal import Verbs

if TYPE_CHECKING:
    from gpuops.inventory import Inventory


@click.group(cls=Verbs, package=__name__)
def command() -> None:
    """Show and check an inventory, and hand it to other tools.

    Ansible can run from gpuops' inventory: make this script executable and give it to ansible -i.

    \b
      #!/bin/sh
      exec gpuops inventory list -i prod.yml --format json
    """  # noqa: D301 - click needs the character itself


def chooses(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which inventory, and which of its hosts."""
    only = "Only these hosts; Ansible's --limit patterns, and gpu[001-128]."
    which = "A file or folder (looked for here and in inventory/), or names: gpu01,gpu02."
    verb = click.option("--limit", default="all", metavar="PATTERN", help=only)(verb)
    return click.option("-i", "--inventory", "source", metavar="FILE", help=which)(verb)


def open_inventory(source: str | None, limit: str) -> tuple[str, Inventory]:
    """The chosen hosts of the inventory that ``-i`` or gpuops.yml names, and what it is called there."""
    from gpuops.inventory import Inventory
    from gpuops.project import shortest

    project = settings()
    source = source or os.environ.get("GPUOPS_INVENTORY")
    name = source or project.inventory
    if name is None:
        raise click.UsageError("name an inventory: -i FILE, or `inventory:` in gpuops.yml")
    folder = Path() if source else shortest(project.folder)
    return name, Inventory.open(name, shortest(project.folder), folder=folder).limit(limit)
