"""``gpuops inventory graph``: the groups and their hosts as a tree."""

from __future__ import annotations

import click

from gpuops.cli._terminal import print_lines
from gpuops.cli.inventory import chooses, open_inventory


@click.command("graph")
@chooses
def command(source: str | None, limit: str) -> None:
    """Draw the groups and their hosts as a tree."""
    from gpuops.report.inventory import branch

    print_lines(branch(open_inventory(source, limit)[1].groups, "all"))
