"""``gpuops drain``: let no more jobs start on nodes, and wait for those that run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, chosen, reaches
from gpuops.cli._terminal import print_lines, tell
from gpuops.requests import DrainRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@asks(DrainRequest)
@reaches
def command(cluster: Cluster, request: DrainRequest, nodes: tuple[str, ...]) -> int:
    """Let no more jobs start on NODES. What runs there goes on to its end; no pod is evicted.

    With `scheduler: slurm` in gpuops.yml nodes are drained by scontrol, with `kubernetes` they are tainted. A node that
    somebody else drained keeps that reason. An admitted node is drained then; any other stays what it is.

    \b
    Exit codes: 0 drained (and empty, with --wait), 1 not so, 2 wrong input,
                4 somebody else works on a node.
    """  # noqa: D301 - click needs the character itself
    from gpuops.reasons import exit_code
    from gpuops.report import transition

    result = carry_out(chosen(cluster, *nodes), request)
    print_lines(transition.lines(result))
    for sentence in transition.complaints(result):
        tell(sentence)
    return exit_code(result)
