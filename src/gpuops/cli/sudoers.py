"""``gpuops sudoers``: the few commands that need root, as a file for /etc/sudoers.d."""

from __future__ import annotations

import click

from gpuops.cli._options import catalogue


@click.command()
@click.option("--user", default="%gpuops", show_default=True, metavar="NAME", help="A user, or %group.")
def command(user: str) -> None:
    """Print a sudoers file that lets USER run, without a password, exactly what the probes gain from root.

    Everything else runs as the ordinary user. Put it in place on a node with: visudo -f /etc/sudoers.d/gpuops
    """
    click.echo(catalogue().sudoers(user), nl=False)
