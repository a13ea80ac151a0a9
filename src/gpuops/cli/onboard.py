"""``gpuops onboard``: take a bare node gate by gate to one that takes jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, chosen, completes, invocation, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, tell, terminal
from gpuops.requests import OnboardRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@click.argument("nodes", nargs=-1, required=True, metavar="PATTERN...", shell_complete=completes("hosts"))
@click.option("--playbook", metavar="PLAYBOOK", default="onboard", show_default=True,
              shell_complete=completes("playbooks"),
              help="Playbook of the provision gate, a file or a name.")  # fmt: skip
@asks(OnboardRequest)
@shows("table", "json")
@reaches(pattern=False, limited=False)
@exits(
    failed="a gate failed, or an admitted node drifted",
    incomplete="a node was unreachable or needs an operator",
    locked="",
)
def command(cluster: Cluster, request: OnboardRequest, output: Output, nodes: tuple[str, ...]) -> int:
    """Take bare nodes through all gates to admission.

    The gates are facts, preflight, provision, a second pass that must change nothing, burn-in, validate, an all-reduce
    with another node, and admission.

    A node stops at the first gate that it fails. The report says what to do, and the next run continues from there.
    Long tests stay valid while driver, kernel, firmware and GPUs are the same. If a node is already admitted, gpuops
    only checks whether it has drifted, without disturbing it.
    """
    from gpuops.reasons import exit_code
    from gpuops.report.onboarding import below, summary

    onboarded = chosen(cluster, *nodes)
    terminal().name_width = max((len(host.name) for host in onboarded.hosts), default=0)
    terminal().lists_gates = output.form == "table"
    result = carry_out(onboarded, request)
    ends = list(summary(result))
    if ends:
        ends.append(f"to go on from there: {invocation()}")
    for sentence in ends if result.interrupted else ():  # who interrupts it may read stdout no more
        tell(sentence)
    shown = [] if result.interrupted else ends
    output.publish(table=lambda page: below(shown, page), json=lambda _: result.to_json())
    return exit_code(result)
