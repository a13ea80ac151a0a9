"""``gpuops state show``: the history of one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import completes, hosts_beside, kept
from gpuops.cli._terminal import Command, Output, shows

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

    result = history(project.store_path, node, lambda: hosts_beside(project))
    output.publish(table=lambda page: states.history_lines(result, page), json=lambda _: result.to_json())
