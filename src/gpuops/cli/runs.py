"""``gpuops runs``: the runs of playbooks, as their journals recorded them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import completes, kept
from gpuops.cli._terminal import Commands, Output, print_lines, shows, tell

if TYPE_CHECKING:
    from gpuops.project import Project


@click.group(cls=Commands)
def command() -> None:
    """List the runs of playbooks and show their changes."""


@command.command("list")
@kept
@shows("table", "json")
def list_(project: Project, output: Output) -> None:
    """List the runs, the latest first.

    A run that did not come to its end can be continued: gpuops provision PLAYBOOK --resume RUN
    """
    from gpuops.playbook import journal
    from gpuops.report import runs

    summaries = journal.summaries(project.runs_path)
    if not summaries and output.form == "table":
        tell("there are no runs yet")
    document = {"schema": "gpuops.runs/1", "runs": [runs.document(each) for each in summaries]}
    output.publish(table=lambda page: runs.rows(summaries, page), json=lambda _: json.dumps(document, indent=1))


@command.command()
@click.argument("run", shell_complete=completes("runs"))
@kept
def show(project: Project, run: str) -> None:
    """Show the changes that a run made, and how each ended."""
    from gpuops.playbook import journal
    from gpuops.report import runs

    print_lines(runs.changes(journal.read(journal.find(project.runs_path, run))))
