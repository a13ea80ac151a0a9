"""``gpuops targets``: the systems that launch files can be rendered for."""

from __future__ import annotations

import json

import click

from gpuops.cli._common.options import catalogue, completes
from gpuops.cli._common.terminal import Commands, Output, page, print_lines, shows


@click.group(cls=Commands)
def command() -> None:
    """List and explain the launch targets."""


@command.command("list")
@shows("table", "json")
def list_(output: Output) -> None:
    """List the launch targets, current ones and those for old code.

    A directory in the templates/ directory of your project hides the built-in target of the same name.
    """
    from gpuops.report import content

    targets = catalogue().targets().values()
    rows = {
        t.name: {"about": t.about, "orders": t.orders, "engine": t.engine, "from": t.origin, "instead": t.instead}
        for t in targets
    }
    output.publish(
        table=lambda page: content.targets_table(targets, page),
        json=lambda _: json.dumps({"schema": "gpuops.targets/1", "targets": rows}, indent=1),
    )


@command.command()
@click.argument("name", shell_complete=completes("targets"))
def explain(name: str) -> None:
    """Show what a target writes, and how its job starts.

    It also shows the order of the ranks, and what the target refuses.
    """
    from gpuops.render import abridged

    target = catalogue().targets()[name]
    click.echo(f"{target.name}   {target.origin}   {target.path}")
    rows = [("", target.about), ("writes", ", ".join(target.files)), ("start", target.start)]
    rows += [("old", f"kept for old code; use {target.instead}")] if target.instead else []
    rows += [("order", " or ".join(target.orders) or "the layout's own"), ("rules of", target.engine)]
    rows += [("refuses", rule.because) for rule in target.rules] + ([("note", target.note)] if target.note else [])
    for label, text in rows:
        print_lines(page().labelled(f"  {label}", abridged(text), 12))
