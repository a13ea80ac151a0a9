"""``gpuops fix``: the fix of a check's finding, shown first and then applied."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, chosen, reaches
from gpuops.cli._terminal import page, print_lines, tell_excluded, tell_locked
from gpuops.proposal import propose
from gpuops.requests import FixRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.playbook.record import Record


@click.command()
@click.argument("check")
@click.argument("node")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@reaches(limited=False)
@asks(FixRequest, "check", "check_only")
def command(cluster: Cluster, request: FixRequest, node: str, *, yes: bool) -> int:
    """Apply the fix of the finding of CHECK on NODE: shown first, done when it is confirmed, and judged again.

    The fix is the playbook fixes/CHECK.yml, the project's own or a built-in one. It is applied to a drained node that
    nothing computes on (with --force, to any); a GPU is reset with its clients stopped, all GPUs of a baseboard
    together where they need it.

    \b
    Exit codes: 0 the check passes now, 1 it does not, or was not confirmed,
    2 wrong input, 3 a node unreachable or a person needed,
    4 somebody else works on it, 130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.errors import NodeError
    from gpuops.reasons import exit_code
    from gpuops.report.verdicts import lines

    hosts = chosen(cluster, node)
    repair = carry_out(hosts, replace(request, check_only=True))
    _show(repair.preview, diff=True)
    if repair.needed and (yes or sys.stdin.isatty()):
        for name, objection in repair.blocked.items():
            raise NodeError(name, f"{objection.why}; first: {objection.do}")
        if not yes and not click.confirm("do it?"):
            return 1
        repair = carry_out(hosts, request)
        if repair.record is not None:
            _show(repair.record, diff=False)
    elif repair.needed:
        click.echo(f"to do it: {propose('fix', request.check, node, '--yes')}")
    print_lines(lines(repair.verdicts))
    tell_excluded(repair.excluded.values())
    return exit_code(repair)


def _show(record: Record, *, diff: bool) -> None:
    from gpuops.report.playbook import record_lines

    tell_locked(record.locked)
    print_lines(record_lines(record, page(), diff=diff, advise=False))
