"""``gpuops state``: what every node is, how it came there, and what it becomes next."""

from __future__ import annotations

import click

from gpuops.cli._terminal import Verbs


@click.group(cls=Verbs, package=__name__)
def command() -> None:
    """Show and set what nodes are: new, provisioned, burned_in, validated, admitted; drained, repair, rma, retired."""
