"""``gpuops state``: the life-cycle state of every node, and its history."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Commands


@click.group(cls=Commands, package=__name__)
def command() -> None:
    """Show or set the life-cycle state of nodes.

    A node is new, provisioned, burned_in, validated or admitted; or drained, repair, rma or retired.
    """
