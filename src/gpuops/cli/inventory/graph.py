"""``gpuops inventory graph``: the groups and their hosts as a tree."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command, print_lines
from gpuops.cli.inventory import chooses, open_inventory


@click.command("graph", cls=Command)
@chooses
def command(source: str | None, limit: str, pattern: str) -> None:
    """Draw the groups and their hosts as a tree."""
    from gpuops.report.inventory import tree

    print_lines(tree(open_inventory(source, limit, pattern)[1].groups, is_whole={limit, pattern} == {"all"}))
