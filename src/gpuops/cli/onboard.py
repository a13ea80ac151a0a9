"""``gpuops onboard``: a bare node becomes one that takes jobs, gate by gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, chosen, reaches
from gpuops.cli._terminal import tell, terminal
from gpuops.requests import OnboardRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--playbook", default="onboard", show_default=True, help="What the nodes become: a file or a name.")
@asks(OnboardRequest)
@reaches(limited=False)
def command(cluster: Cluster, request: OnboardRequest, nodes: tuple[str, ...]) -> int:
    """Take NODES from bare machines to admitted ones: facts, preflight, provision, a second pass that changes nothing,
    burn-in, validation, a pair with an admitted neighbour, admission.

    A node stops at the first gate that it fails; the report says what to do, and the next run goes on from there: the
    long tests stay valid for the same driver, kernel, firmware and GPUs. A node that is admitted already is only asked
    whether it is still what it was, and not disturbed.

    \b
    Exit codes: 0 admitted, 1 a gate failed or an admitted node drifted,
                2 wrong input, 3 a node unreachable or a person needed,
                4 somebody else works on a node, 130 interrupted.
    """  # noqa: D205, D301 - click needs the character itself, and one paragraph
    from gpuops.reasons import exit_code
    from gpuops.report.onboarding import stopped

    onboarded = chosen(cluster, *nodes)
    terminal().name_width = max((len(host.name) for host in onboarded.hosts), default=0)
    result = carry_out(onboarded, request)
    if result.interrupted:
        tell("interrupted; the gates that were passed are kept")
    elif any(node.stopped_at for node in result.nodes.values()):
        click.echo(f"\nstopped: {stopped(result)}; the same command goes on from there")
    return exit_code(result)
