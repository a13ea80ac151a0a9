"""``gpuops state show``: the history of one node."""

from __future__ import annotations

import click

from gpuops.cli._options import completes
from gpuops.cli._terminal import Command, Output, shows
from gpuops.cli.state import store_path


@click.command("show", cls=Command)
@click.argument("node", shell_complete=completes("hosts"))
@shows("table", "json")
def command(node: str, output: Output) -> None:
    """Show the history of a node and the gates it passed."""
    from gpuops.operations.life import history
    from gpuops.report import states

    result = history(store_path(), node)
    output.publish(table=lambda page: states.history_lines(result, page), json=lambda _: result.to_json())
