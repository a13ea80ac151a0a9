"""``gpuops validate``: ask every node, judge what it says, name each fault with its fix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import asks, carry_out, reaches
from gpuops.requests import ValidateRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@reaches(saved=True)
@asks(ValidateRequest)
@click.option("--fail-on", type=click.Choice(["fail", "warn", "never"]), help="Exit 1 from here on (fail).")
@click.option("--format", "form", metavar="FORMAT", default="table", show_default=True, help="table, json or junit.")
@click.option(
    "-o",
    "--output",
    "outputs",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write a report there, in --format or the one that its suffix names (.json, .xml, .txt); repeatable.",
)
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR", help="Keep the nodes' answers, for --from.")
def command(
    cluster: Cluster,
    request: ValidateRequest,
    fail_on: str | None,
    form: str,
    outputs: tuple[Path, ...],
    save: Path | None,
) -> int:
    """Judge every node: the verdict first, then each fault with its evidence and its fix.

    Without an inventory it judges this machine. Nothing is installed on the nodes and no job is disturbed: what the
    higher levels measure, they measure on nodes that are proved idle.

    \b
    Exit codes: 0 all well, 1 findings at or above --fail-on, 2 wrong input,
                3 a node unreachable or not enough known of it, 130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.cli._terminal import page
    from gpuops.reasons import exit_code
    from gpuops.report import formats_of, publish
    from gpuops.report.output import save_facts

    formats = formats_of(form, outputs)  # a wrong one is told before any node is asked
    report = carry_out(cluster, replace(request, keep_answers=save is not None))
    if save:
        save_facts(report.facts, save)
    text = publish(report, form, formats, page())
    click.echo(text, nl=False)
    threshold: Any = fail_on or cluster.project.fail_on
    return exit_code(report, threshold)
