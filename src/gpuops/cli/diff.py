"""``gpuops diff``: two runs compared, as the store keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import kept
from gpuops.cli._common.terminal import Command, Output, shows

if TYPE_CHECKING:
    from gpuops.project import Project


@click.command(cls=Command)
@click.argument("runs", nargs=-1, type=click.IntRange(1, 2**63 - 1), metavar="[RUN [RUN]]")
@kept
@shows("table", "json")
def command(project: Project, runs: tuple[int, ...], output: Output) -> None:
    """Show what changed between two runs.

    One RUN is compared with the latest run of the same kind. Without RUN, the latest validation is compared with the
    one before it. To list the numbers of all runs: gpuops runs list
    """
    from gpuops.operations.past.history import diff
    from gpuops.report.past import history
    from gpuops.results.changes import diff_document, to_json

    if len(runs) > 2:
        raise click.UsageError(f"expected at most two runs, found {len(runs)}")
    result = diff(project.store_path, runs)
    output.publish(
        table=lambda page: history.diff_lines(result, page),
        json=lambda _: to_json(diff_document(result)),
    )
