"""``gpuops state set``: put nodes into a state by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, chosen, completes, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, tell
from gpuops.requests import SetStateRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command("set", cls=Command)
@click.argument("node", metavar="PATTERN", shell_complete=completes("hosts"))
@click.argument("state", metavar="repair|rma|retired|new")
@asks(SetStateRequest)
@shows("table", "json")
@reaches(pattern=False)
@exits(failed="a node cannot be set to this state", incomplete="", locked="")
def command(cluster: Cluster, request: SetStateRequest, output: Output, node: str) -> int:
    """Set nodes to repair, rma, retired or new.

    Only states that can follow the current one are allowed. The nodes are drained; `gpuops admit` or `gpuops onboard`
    lets them take jobs again.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import states

    result = carry_out(chosen(cluster, node), request)
    output.publish(
        table=lambda _: (f"{host}   {event.state}" for host, event in result.events.items()),
        json=lambda _: result.to_json(),
    )
    for sentence in states.transition_complaints(result):
        tell(sentence)
    return exit_code(result)
