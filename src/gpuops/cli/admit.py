"""``gpuops admit``: let nodes take jobs if they have the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, chosen, completes, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, tell
from gpuops.requests import AdmitRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@click.argument("nodes", nargs=-1, required=True, metavar="PATTERN...", shell_complete=completes("hosts"))
@click.option("--reason", default="by hand", show_default=True, metavar="REASON", help="Reason; it is recorded.")
@asks(AdmitRequest, "reason")
@shows("table", "json")
@reaches(pattern=False)
@exits(failed="a node was not admitted", incomplete="a node was unreachable", locked="")
def command(cluster: Cluster, request: AdmitRequest, output: Output, nodes: tuple[str, ...]) -> int:
    """Let nodes take jobs again if they passed every gate.

    gpuops reads each node's driver, kernel, firmware and serial numbers, and runs the quick checks. A node that has
    changed since `gpuops onboard` must be onboarded again. A node that another user drained or cordoned is not touched.
    --force admits nodes without the proof of onboarding.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import states

    result = carry_out(chosen(cluster, *nodes), request)
    output.publish(table=lambda _: states.transition_lines(result), json=lambda _: result.to_json())
    for sentence in states.transition_complaints(result):
        tell(sentence)
    return exit_code(result)
