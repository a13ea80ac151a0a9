"""``gpuops lab audit``: what was run on a host."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command, print_lines
from gpuops.cli.lab import running_folder


@click.command(cls=Command)
@click.argument("host")
def command(host: str) -> None:
    """Show every command that was run on a host."""
    from gpuops.lab import cluster

    print_lines(cluster.audit(running_folder(), host))
