"""``gpuops lab down``: stop the hosts."""

from __future__ import annotations

import click

from gpuops.cli._terminal import Command
from gpuops.cli.lab import FOLDER


@click.command(cls=Command)
def command() -> None:
    """Stop the lab and remove its files."""
    from gpuops.lab import cluster

    click.echo("the lab is stopped" if cluster.down(FOLDER) else "no lab is running here")
