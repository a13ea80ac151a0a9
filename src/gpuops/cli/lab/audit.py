"""``gpuops lab audit``: what was run on a host."""

from __future__ import annotations

import click

from gpuops.cli._terminal import print_lines
from gpuops.cli.lab import FOLDER


@click.command()
@click.argument("host")
def command(host: str) -> None:
    """Show everything that was run on HOST."""
    from gpuops.lab import cluster

    print_lines(cluster.audit(FOLDER, host))
