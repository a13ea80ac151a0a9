"""``gpuops lab down``: stop the hosts."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command
from gpuops.cli.lab import DEMO_FOLDER, FOLDER


@click.command(cls=Command)
def command() -> None:
    """Stop the lab or the demo's lab, and remove its files."""
    from gpuops.lab import cluster

    stopped = [cluster.down(folder) for folder in (FOLDER, DEMO_FOLDER)]
    click.echo("the lab is stopped" if any(stopped) else "no lab is running here")
