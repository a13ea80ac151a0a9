"""``gpuops lab clear``: remove faults."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command
from gpuops.cli.lab import running_folder, show_faults


@click.command(cls=Command)
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
def command(hosts: tuple[str, ...]) -> None:
    """Remove all faults from the hosts.

    Without HOST, all hosts become healthy again.
    """
    from gpuops.lab import cluster

    show_faults(cluster.clear(running_folder(), hosts))
