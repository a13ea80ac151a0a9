"""``gpuops lab clear``: remove faults."""

from __future__ import annotations

import click

from gpuops.cli.lab import FOLDER, show_faults


@click.command()
@click.argument("hosts", nargs=-1)
def command(hosts: tuple[str, ...]) -> None:
    """Make hosts healthy again; all of them if none is named."""
    from gpuops.lab import cluster

    show_faults(cluster.clear(FOLDER, hosts))
