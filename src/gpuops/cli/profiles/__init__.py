"""``gpuops profiles``: the machines that gpuops knows, what it expects of each, and profiles of your own."""

from __future__ import annotations

import click

from gpuops.cli._common.terminal import Commands


@click.group(cls=Commands, package=__name__)
def command() -> None:
    """List, show, compare and learn profiles of machines."""
