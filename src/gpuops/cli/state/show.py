"""``gpuops state show``: the history of one node."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import NAMED_INVENTORY, completes, current_project, kept
from gpuops.cli._common.terminal import Command, Output, shows

if TYPE_CHECKING:
    from gpuops.project import Project


@click.command("show", cls=Command)
@click.argument("node", shell_complete=completes("hosts"))
@kept
@shows("table", "json")
def command(project: Project, node: str, output: Output) -> None:
    """Show the history of a node and the gates it passed."""
    from gpuops.operations.life import history
    from gpuops.report import states

    result = history(project.store_path, node, lambda: _hosts_beside(project))
    output.publish(table=lambda page: states.history_lines(result, page), json=lambda _: result.to_json())


def _hosts_beside(project: Project) -> tuple[str, ...]:
    """Return the hosts of the inventory that `kept` was given, or of the configured one; none without either."""
    from gpuops.inventory import Inventory
    from gpuops.store.place import configured_inventory

    named = click.get_current_context().meta.get(NAMED_INVENTORY) or configured_inventory(project, os.environ)
    return tuple(Inventory.open(named, current_project()).hosts) if named else ()
