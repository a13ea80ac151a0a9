"""``gpuops provision``: bring nodes to the state that a playbook describes, or show what that would change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, chosen, completes, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, tell_locked
from gpuops.requests import ProvisionRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.playbook.play import Playbook


@click.command(cls=Command)
@click.argument("playbook", shell_complete=completes("playbooks"))
@asks(ProvisionRequest)
@click.option("-D", "--diff", is_flag=True, help="Show the difference in each file and list of packages.")
@click.option("--syntax-check", is_flag=True, help="Check the playbook; connect to no node.")
@click.option("--list-tasks", is_flag=True, help="List plays, steps and handlers; connect to no node.")
@click.option("--list-hosts", is_flag=True, help="List the nodes of each play, batch by batch; connect to none.")
@shows("table", "json")
@reaches(limited=False)
@exits(
    failed="a step failed; with --check: a step would change something",
    incomplete="a node was unreachable or needs an operator",
    locked="",
)
def command(
    cluster: Cluster, request: ProvisionRequest, output: Output, *, diff: bool, list_hosts: bool, **only: bool
) -> int:
    """Bring nodes to the state that a playbook describes.

    PLAYBOOK is a file, or the name of a playbook in playbooks/ or built in. Each step inspects the node, changes only
    what differs, and inspects it again. Every change is written to a journal first, so that --resume can continue an
    interrupted run. A second run changes nothing. --force also changes nodes that run jobs. This machine is changed
    only if --local or the inventory names it.

    --extra-vars takes YAML values (-e driver=580 -e 'peers=[a, b]') and overrides the playbook's variables and the
    inventory's.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import playbook
    from gpuops.report.playbook import plan as steps

    if only["list_tasks"] or only["syntax_check"]:
        book = _playbook(cluster, request)
        output.publish(
            table=lambda page: steps.list_steps(book, page) if only["list_tasks"] else steps.summary(book),
            json=lambda _: steps.steps_json(book),
        )
        return 0
    plan = chosen(cluster).preview(request)
    if list_hosts:
        output.publish(
            table=lambda _: steps.list_hosts(plan.plays),
            json=lambda _: steps.hosts_json(plan.book, plan.plays),
        )
        return 0
    record = carry_out(cluster, request)
    tell_locked(record.locked)
    typed = ("gpuops", *sys.argv[1:])
    output.publish(
        table=lambda page: playbook.record_lines(record, page, diff=diff, typed=typed), json=lambda _: record.to_json()
    )
    return exit_code(record)


def _playbook(cluster: Cluster, request: ProvisionRequest) -> Playbook:
    """Return the playbook, whichever hosts there are."""
    from gpuops.playbook.loading import load_playbook

    return load_playbook(str(request.playbook), cluster.catalogue.tasks(), cluster.catalogue.project)
