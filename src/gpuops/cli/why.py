"""``gpuops why``: one screen about a node, from the store: what is wrong, since when, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import completes, kept
from gpuops.cli._common.terminal import Command, Output, shows

if TYPE_CHECKING:
    from gpuops.project import Project


@click.command(cls=Command)
@click.argument("node", shell_complete=completes("hosts"))
@kept
@shows("table", "json")
def command(project: Project, node: str, output: Output) -> None:
    """Explain the state of a node on one screen.

    The screen shows the node's parts and state, its findings and how long they have lasted, earlier failures of its
    parts, what was tried, and what to do next. It is read from the store; no node is queried.
    """
    from gpuops.operations.past.history import why
    from gpuops.report.past import why as report
    from gpuops.results.changes import to_json, why_document

    result = why(project.store_path, node)
    output.publish(table=lambda page: report.lines(result, page), json=lambda _: to_json(why_document(result)))
