"""``gpuops state set``: put a node into a state by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, chosen, reaches
from gpuops.cli._terminal import tell
from gpuops.requests import SetStateRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command("set")
@click.argument("node")
@click.argument("state")
@asks(SetStateRequest)
@reaches
def command(cluster: Cluster, request: SetStateRequest, node: str) -> int:
    """Make NODE repair, rma, retired, or new again.

    Each as far as it follows from what the node is. It is drained then; what lets it take jobs again is
    `gpuops admit` or `gpuops onboard`.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import transition

    result = carry_out(chosen(cluster, node), request)
    for host, event in result.events.items():
        click.echo(f"{host}   {event.state}")
    for sentence in transition.complaints(result):
        tell(sentence)
    return exit_code(result)
