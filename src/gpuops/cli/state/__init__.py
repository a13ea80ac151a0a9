"""``gpuops state``: the life-cycle state of every node, and its history."""

from __future__ import annotations

from pathlib import Path

import click

from gpuops.cli._options import settings
from gpuops.cli._terminal import Commands


@click.group(cls=Commands, package=__name__)
def command() -> None:
    """Show or set the life-cycle state of nodes.

    A node is new, provisioned, burned_in, validated or admitted; or drained, repair, rma or retired.
    """


def store_path() -> Path:
    """Return the store of the current project."""
    return settings().store_path
