"""``gpuops sudoers``: the few commands that need root, as a file for /etc/sudoers.d."""

from __future__ import annotations

import click

from gpuops.cli._common.options import catalogue
from gpuops.cli._common.terminal import Command


@click.command(cls=Command)
@click.option("--user", default="%gpuops", show_default=True, metavar="NAME", help="A user, or %group.")
def command(user: str) -> None:
    """Print the sudoers rules that the probes can use.

    The rules let USER run, without a password, exactly the commands of the probes that need root; all others run as
    the ordinary user. To install them on a node: visudo -f /etc/sudoers.d/gpuops
    """
    click.echo(catalogue().sudoers(user), nl=False)
