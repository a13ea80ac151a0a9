"""``gpuops lab fault``: inject faults."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Command
from gpuops.cli.lab import running_folder, show_faults


@click.command(cls=Command)
@click.argument("faults", nargs=-1, required=True, metavar="HOST:SUBJECT:FAULT[=VALUE]...")
def command(faults: tuple[str, ...]) -> None:
    """Inject faults into running hosts."""
    from gpuops.lab import cluster

    show_faults(cluster.inject(running_folder(), faults))
