"""gpuops journal: what runs of playbooks wrote down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import kept

if TYPE_CHECKING:
    from gpuops.project import Project


@click.group()
def command() -> None:
    """The journals of runs of playbooks."""


@command.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@kept
def verify(project: Project, runs: tuple[str, ...]) -> int:
    """Whether the journals of RUNs (default: all) are as they were written.

    Each line is sealed together with all before it, so that an edit is named by file and line. Note the last seal of a
    run elsewhere: it alone shows that somebody wrote the whole journal anew, or cut off its end.

    \b
    Exit codes: 0 all are, 2 one is not, or there is no such run.
    """  # noqa: D301 - click needs the character itself
    from gpuops.playbook import journal

    folder = project.runs_path
    for run in runs or sorted(path.parent.name for path in folder.glob("*/journal.jsonl")):
        click.echo(f"{run}   {journal.verify(journal.find(folder, run))}")
    return 0
