"""``gpuops state show``: the history of one node."""

from __future__ import annotations

import json

import click

from gpuops.cli._terminal import page, print_lines
from gpuops.cli.state import store_path


@click.command("show")
@click.argument("node")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(node: str, *, as_json: bool) -> None:
    """Show what NODE is and was, and what it passed."""
    from gpuops.operations.life import history
    from gpuops.report import states

    result = history(store_path(), node)
    print_lines([json.dumps(result.to_document())] if as_json else states.history_lines(result, page()))
