"""``gpuops state show``: the history of one node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import kept
from gpuops.cli._terminal import page, print_lines

if TYPE_CHECKING:
    from gpuops.project import Project


@click.command("show")
@click.argument("node")
@kept
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(project: Project, node: str, *, as_json: bool) -> None:
    """Show what NODE is and was, and what it passed."""
    from gpuops.operations.life import history
    from gpuops.report import states

    result = history(project.store_path, node)
    print_lines([json.dumps(result.to_document())] if as_json else states.history_lines(result, page()))
