"""``gpuops provision``: bring nodes to the state that a playbook describes, or show what that would change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, chosen, reaches
from gpuops.cli._terminal import page, print_lines, tell_locked
from gpuops.requests import ProvisionRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.playbook.play import Playbook


@click.command()
@click.argument("playbook")
@reaches(limited=False)
@asks(ProvisionRequest)
@click.option("--diff", is_flag=True, help="Show the difference of every file and list of packages.")
@click.option("--list-tasks", is_flag=True, help="List plays, steps and handlers; ask no node.")
@click.option("--list-hosts", is_flag=True, help="List the nodes of each play, batch by batch; ask none.")
def command(cluster: Cluster, request: ProvisionRequest, *, diff: bool, list_tasks: bool, list_hosts: bool) -> int:
    """Bring nodes to the state that PLAYBOOK describes: a file, or the name of one in playbooks/ or built in.

    Every step looks first and changes only what differs, then looks again whether it took effect. Before each change a
    line is written to the run's journal, so that a run that was killed goes on with --resume. A second run changes
    nothing. --force changes nodes that run jobs, too. This machine is changed only if --local or the
    inventory names it.

    \b
    Exit codes: 0 every node is in the desired state,
    1 a step failed (with --check: something would be changed), 2 wrong input,
    3 a node unreachable or a person needed, 4 somebody else works on a node,
    130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.reasons import exit_code
    from gpuops.report import playbook, playbook_plan

    if list_tasks:
        print_lines(playbook_plan.list_steps(_playbook(cluster, request)))
        return 0
    plan = chosen(cluster).plan(request)
    if list_hosts:
        print_lines(playbook_plan.list_hosts(plan.plays))
        return 0
    record = carry_out(cluster, request)
    tell_locked(record.locked)
    print_lines(playbook.record_lines(record, page(), diff=diff))
    return exit_code(record)


def _playbook(cluster: Cluster, request: ProvisionRequest) -> Playbook:
    """The playbook, whichever hosts there are."""
    from gpuops.playbook.loading import load_playbook

    return load_playbook(str(request.playbook), cluster.catalogue.tasks(), cluster.catalogue.project)
