"""``gpuops drain``: let no new jobs start on nodes, and wait for the running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, chosen, completes, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, tell
from gpuops.requests import DrainRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@click.argument("nodes", nargs=-1, required=True, metavar="PATTERN...", shell_complete=completes("hosts"))
@asks(DrainRequest)
@shows("table", "json")
@reaches(pattern=False)
@exits(
    failed="a node is not drained, or still runs jobs after --wait",
    incomplete="max_closed allows no more, or gpuops.yml names no scheduler",
    locked="",
)
def command(cluster: Cluster, request: DrainRequest, output: Output, nodes: tuple[str, ...]) -> int:
    """Stop new jobs from starting on nodes.

    Running jobs continue to their end, and no pod is evicted. With `scheduler: slurm` in gpuops.yml, scontrol drains
    the nodes; with `kubernetes`, they get a taint. A node that another user drained keeps its reason. The state of an
    admitted node becomes drained; other nodes keep their state. If gpuops.yml names no scheduler, the drain is only
    recorded: nothing keeps new jobs away, and the exit code is 3; with `scheduler: none` it is 0. If more nodes would
    be drained within 24 hours than `max_closed` in gpuops.yml allows, none is drained; --force overrides this.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import states

    result = carry_out(chosen(cluster, *nodes), request)
    output.publish(table=lambda _: states.transition_lines(result), json=lambda _: result.to_json())
    for sentence in states.transition_complaints(result):
        tell(sentence)
    return exit_code(result)
