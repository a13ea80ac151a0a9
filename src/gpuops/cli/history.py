"""``gpuops history``: what the store knows of nodes, parts and links over time."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import completes, kept
from gpuops.cli._common.terminal import Command, Output, shows

if TYPE_CHECKING:
    from gpuops.project import Project
    from gpuops.results.history import History

_PARTS = ("gpu", "hca", "nvme", "cable")


@click.command(cls=Command)
@click.argument("what", nargs=-1, metavar="[NODE | gpu SERIAL | link A B]", shell_complete=completes("hosts"))
@kept
@shows("table", "json", "csv")
def command(project: Project, what: tuple[str, ...], output: Output) -> None:
    """Show the past of all nodes, a node, a part or a link.

    Without arguments it lists the nodes and parts that failed most often, and the failure rate of each model.
    NODE shows the findings, parts and figures of a node. gpu SERIAL (or hca GUID, nvme SERIAL, cable
    SERIAL) shows a part, in every node that it was in. link A B shows the bandwidth between two nodes.
    """
    from gpuops.report.past import history
    from gpuops.results.changes import history_document, to_json

    past = _past(project, what)
    output.publish(
        table=lambda page: history.lines(past, page),
        json=lambda _: to_json(history_document(past)),
        csv=lambda _: history.to_csv(past),
    )


def _past(project: Project, what: tuple[str, ...]) -> History:
    from gpuops.operations.past import history

    path = project.store_path
    if not what:
        return history.of_fleet(path)
    if len(what) == 1 and what[0] not in (*_PARTS, "link"):
        return history.of_node(path, what[0])
    if len(what) == 2 and what[0] in _PARTS:
        return history.of_part(path, what[1])
    if len(what) == 3 and what[0] == "link":
        return history.of_link(path, what[1], what[2])
    found = shlex.join(what)
    raise click.UsageError(f"expected NODE, gpu SERIAL, hca GUID, nvme SERIAL, cable SERIAL or link A B, found {found}")
