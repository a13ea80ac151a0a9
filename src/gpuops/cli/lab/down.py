"""``gpuops lab down``: end the hosts."""

from __future__ import annotations

import click

from gpuops.cli.lab import FOLDER


@click.command()
def command() -> None:
    """End the lab and remove what it made."""
    from gpuops.lab import cluster

    click.echo("the lab is down" if cluster.down(FOLDER) else "no lab runs here")
