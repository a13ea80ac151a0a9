"""``gpuops admit``: let nodes take jobs that proved what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, chosen, reaches
from gpuops.cli._terminal import print_lines, tell
from gpuops.requests import AdmitRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--reason", default="by hand", show_default=True, metavar="WHY", help="Why; it is kept.")
@asks(AdmitRequest, "reason")
@reaches
def command(cluster: Cluster, request: AdmitRequest, nodes: tuple[str, ...]) -> int:
    """Let NODES take jobs again if they are the machines that passed every gate of `gpuops onboard`.

    Each node is asked what it is (driver, kernel, firmware, serial numbers) and what the quick checks ask. A changed
    one must be onboarded again. A node that somebody else drained or cordoned is left alone. --force admits without
    the proof that onboarding gives.

    \b
    Exit codes: 0 they take jobs, 1 one does not, 2 wrong input,
                3 a node unreachable, 4 somebody else works on a node.
    """  # noqa: D301 - click needs the character itself
    from gpuops.reasons import exit_code
    from gpuops.report import transition

    result = carry_out(chosen(cluster, *nodes), request)
    print_lines(transition.lines(result))
    for sentence in transition.complaints(result):
        tell(sentence)
    return exit_code(result)
