"""``gpuops runs``: the runs of playbooks, as their journals recorded them, and those that the store keeps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import completes, kept
from gpuops.cli._common.terminal import Commands, Output, shows, tell

if TYPE_CHECKING:
    from gpuops.project import Project


@click.group(cls=Commands)
def command() -> None:
    """List the runs of commands and playbooks, and show one."""


@command.command("list")
@kept
@shows("table", "json")
def list_(project: Project, output: Output) -> None:
    """List the runs, the latest first.

    Runs with a number checked or measured nodes; gpuops diff compares two of them. The others ran a playbook. To
    resume an interrupted one: gpuops provision PLAYBOOK --resume RUN
    """
    from gpuops.playbook import journal
    from gpuops.report import runs
    from gpuops.report.past import history
    from gpuops.results.changes import run_document
    from gpuops.store import Runs

    summaries = journal.summaries(project.runs_path, lambda error: tell(f"{error}; left out"))
    with Runs(project.store_path, create=False) as store:
        kept_runs = store.runs()
    if not (summaries or kept_runs) and output.form == "table":
        tell("there are no runs yet")
    document = {
        "schema": "gpuops.runs/1",
        "runs": [runs.document(each) for each in summaries],
        "kept": [run_document(each) for each in kept_runs],
    }
    output.publish(
        table=lambda page: [
            *history.run_rows(kept_runs, page),
            *([""] if kept_runs and summaries else []),
            *runs.rows(summaries, page),
        ],
        json=lambda _: json.dumps(document, indent=1),
    )


@command.command()
@click.argument("run", shell_complete=completes("runs"))
@kept
@shows("table", "json")
def show(project: Project, run: str, output: Output) -> None:
    """Show what a run found, or what it changed."""
    if run.isascii() and run.isdigit() and len(run) < 19:
        _show_kept(project, int(run), output)
    else:
        _show_journal(project, run, output)


def _show_kept(project: Project, number: int, output: Output) -> None:
    from gpuops.operations.past.history import of_run
    from gpuops.report.past import history
    from gpuops.results.changes import run_details, to_json

    run = of_run(project.store_path, number)
    output.publish(table=lambda page: history.run_lines(run, page), json=lambda _: to_json(run_details(run)))


def _show_journal(project: Project, run: str, output: Output) -> None:
    from gpuops.playbook import journal
    from gpuops.report import runs

    entries = list(journal.read(journal.find(project.runs_path, run)))
    document = {"schema": "gpuops.playbook-run/1", "run": run, "lines": entries}
    output.publish(table=lambda _: runs.changes(entries), json=lambda _: json.dumps(document, indent=1))
