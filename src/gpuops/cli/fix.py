"""``gpuops fix``: the fix for a check's finding, shown first and then applied."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.asking import confirmed
from gpuops.cli._common.options import asks, carry_out, chosen, completes, reaches
from gpuops.cli._common.terminal import (
    Command,
    Output,
    exits,
    page,
    print_lines,
    shows,
    tell,
    tell_excluded,
    tell_locked,
)
from gpuops.proposal import propose
from gpuops.requests import FixRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.playbook.record import Record
    from gpuops.results.repair import Repair


@click.command(cls=Command)
@click.argument("check", shell_complete=completes("fixes"))
@click.argument("node", metavar="PATTERN", shell_complete=completes("hosts"))
@click.option("-y", "--yes", is_flag=True, help="Apply the fix without asking.")
@asks(FixRequest, "check", "check_only")
@click.option("--bundle/--no-bundle", default=True, help="Keep evidence before the first change (default: yes).")
@shows("table", "json")
@reaches(pattern=False, limited=False)
@exits(
    failed="the check still fails, or the fix was not confirmed",
    incomplete="a node was unreachable or needs an operator",
    locked="",
)
def command(cluster: Cluster, request: FixRequest, output: Output, node: str, *, yes: bool) -> int:
    """Apply the fix for a finding, after showing it.

    The fix for a finding of CHECK is the playbook fixes/CHECK.yml, the project's own or a built-in one. gpuops shows
    it, applies it after confirmation, and runs CHECK again. A node that takes jobs must be drained first: one that is
    admitted, or that the scheduler has not drained. Every node must be proved idle before the first change. --force
    overrides both. Before that change, gpuops also keeps the node's evidence, as gpuops bundle collects it. To reset a
    GPU, gpuops stops its clients; if necessary, it resets all GPUs of a baseboard together.
    """
    from gpuops.errors import NodeError
    from gpuops.reasons import exit_code
    from gpuops.report.verdicts import lines

    hosts, is_table = chosen(cluster, node), output.form == "table"
    repair = carry_out(hosts, replace(request, check_only=True))
    tell_locked(repair.preview.locked)
    print_lines(_record_lines(repair.preview, diff=True) if is_table else ())
    if repair.needed and (yes or (is_table and sys.stdin.isatty())):
        for name, objection in repair.blocked.items():
            raise NodeError(name, f"{objection.why}; first: {objection.do}")
        if not yes and not confirmed("Apply this fix?"):
            tell("nothing was changed; --yes applies the fix without asking")
            return 1
        repair = carry_out(hosts, request)
        tell_locked(repair.record.locked if repair.record else ())
    result = [*_outcome(repair, request, node), *lines(repair.verdicts)]
    output.publish(table=lambda _: result, json=lambda _: repair.to_json())
    tell_excluded(repair.excluded.values())
    return exit_code(repair)


def _outcome(repair: Repair, request: FixRequest, node: str) -> Iterator[str]:
    yield from (f"evidence of {host}: {path}" for host, path in repair.bundles.items())
    if repair.record is not None:
        yield from _record_lines(repair.record, diff=False)
    elif repair.needed:
        yield f"to apply it: {propose('fix', request.check, node, '--yes')}"


def _record_lines(record: Record, *, diff: bool) -> Iterator[str]:
    from gpuops.report.playbook import record_lines

    return record_lines(record, page(), diff=diff)
