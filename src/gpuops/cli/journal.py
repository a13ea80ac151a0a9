"""``gpuops journal``: what the runs of playbooks recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import completes, kept
from gpuops.cli._common.terminal import Commands, tell

if TYPE_CHECKING:
    from gpuops.project import Project


@click.group(cls=Commands)
def command() -> None:
    """Verify the journals of playbook runs."""


@command.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completes("runs"))
@kept
def verify(project: Project, runs: tuple[str, ...]) -> int:
    """Verify that no journal was modified after the run.

    Without RUN, all journals are verified. Each line is sealed together with all lines before it. An edit is reported
    with its file and line, and the exit code is 2. Keep the last seal of a run elsewhere: only this seal reveals a
    journal that was rewritten as a whole or truncated.
    """
    from gpuops.playbook import journal

    folder = project.runs_path
    names = runs or sorted(path.parent.name for path in folder.glob("*/journal.jsonl"))
    if not names:
        tell("there are no runs yet")
    for run in names:
        click.echo(f"{run}   {journal.verify(journal.find(folder, run))}")
    return 0
