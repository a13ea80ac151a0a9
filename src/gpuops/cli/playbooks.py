"""``gpuops playbooks``: the playbooks that can be applied by name."""

from __future__ import annotations

import json

import click

from gpuops.cli._common.options import catalogue, completes
from gpuops.cli._common.terminal import Commands, Output, page, print_lines, shows


@click.group(cls=Commands)
def command() -> None:
    """List and explain the built-in and project playbooks."""


@command.command("list")
@shows("table", "json")
def list_(output: Output) -> None:
    """List the playbooks and where each comes from.

    A file in the playbooks/ directory of your project hides the built-in playbook of the same name.
    """
    from gpuops.report import content

    books = content.playbook_rows(catalogue().project)
    rows = {name: {"about": about, "from": origin} for name, about, origin in books}
    output.publish(
        table=lambda page: content.table(books, page),
        json=lambda _: json.dumps({"schema": "gpuops.playbooks/1", "playbooks": rows}, indent=1),
    )


@command.command()
@click.argument("name", shell_complete=completes("playbooks"))
def explain(name: str) -> None:
    """Show what a playbook is for, and its steps."""
    from gpuops.report import content
    from gpuops.report.playbook import plan

    book = catalogue().playbooks()[name]
    print_lines(page().labelled("", content.about_playbook(book.path), 0))
    print_lines(plan.list_steps(book, page()))
