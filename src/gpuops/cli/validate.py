"""``gpuops validate``: query every node, judge the answers, and name each fault with its fix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, exits, output_options
from gpuops.requests import ValidateRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster

_format, _json, _output = output_options("table", "json", "junit")


@click.command(cls=Command)
@asks(ValidateRequest)
@click.option(
    "--fail-on",
    type=click.Choice(["fail", "warn", "never", "new"]),
    help="Lowest severity that exits with 1 (default: fail); new: only failures that a node did not have before.",
)
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR", help="Save the answers for --from.")
@_format
@_json
@_output
@reaches(saved=True)
@exits(failed="findings at or above --fail-on", incomplete="")
def command(
    cluster: Cluster,
    request: ValidateRequest,
    fail_on: str | None,
    save: Path | None,
    form: str,
    paths: tuple[Path, ...],
    *,
    as_json: bool,
) -> int:
    """Check every node and report faults with fixes.

    The report begins with the verdict. Each fault comes with its evidence and its fix. Checking installs nothing and
    does not disturb jobs: the levels above quick also measure, but only on idle nodes. Without an inventory, gpuops
    checks this machine.
    """
    from gpuops.cli._common.terminal import page
    from gpuops.reasons import exit_code
    from gpuops.report import formats_of, publish
    from gpuops.report.answers import save_facts

    form = "json" if as_json else form
    formats = formats_of(form, paths)  # a wrong one is reported before any node is asked
    report = carry_out(cluster, replace(request, keep_answers=save is not None))
    if save:
        save_facts(report.facts, save, report.excluded, cluster.hosts)
    click.echo(publish(report, form, formats, page()), nl=False)
    threshold: Any = fail_on or cluster.project.fail_on
    return exit_code(report, threshold)
