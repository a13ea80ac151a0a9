"""``gpuops state list``: the state of every node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import kept
from gpuops.cli._common.terminal import Command, Output, shows, tell

if TYPE_CHECKING:
    from gpuops.project import Project


@click.command("list", cls=Command)
@kept
@shows("table", "json")
def command(project: Project, output: Output) -> None:
    """List the state of every node, since when, and why."""
    from gpuops.proposal import propose
    from gpuops.report import states
    from gpuops.results.life import event_document
    from gpuops.store import Store

    with Store(project.store_path, create=False) as store:
        events = store.latest_by_node()
    if not events and output.form == "table":
        tell(f"no node has a state yet; to give one to a node: {propose('onboard', 'NODE')}")
    document = {"schema": "gpuops.states/1", "hosts": {name: event_document(event) for name, event in events.items()}}
    output.publish(table=lambda page: states.list_lines(events, page), json=lambda _: json.dumps(document, indent=1))
