"""``gpuops state list``: what every node is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import kept
from gpuops.cli._terminal import page, print_lines, tell

if TYPE_CHECKING:
    from gpuops.project import Project


@click.command("list")
@kept
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(project: Project, *, as_json: bool) -> None:
    """List what every node is, since when, by whom and why."""
    from gpuops.report import states
    from gpuops.results.life import event_document
    from gpuops.store import Store

    with Store(project.store_path) as store:
        events = store.latest_by_node()
    if as_json:
        click.echo(json.dumps({name: event_document(event) for name, event in events.items()}, indent=1))
        return
    if not events:
        tell("no node has a history yet; onboarding begins one")
    print_lines(states.list_lines(events, page()))
