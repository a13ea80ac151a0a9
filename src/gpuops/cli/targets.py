"""``gpuops targets``: the systems that launch files can be rendered for."""

from __future__ import annotations

import json

import click

from gpuops.cli._options import catalogue


@click.group()
def command() -> None:
    """List the launch targets, and explain each."""


@command.command("list")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def list_(form: str) -> None:
    """List every launch target: what it is, the rank order that it imposes, and where it comes from."""
    targets = catalogue().targets()
    if form == "json":
        rows = {
            t.name: {"about": t.about, "orders": t.orders, "engine": t.engine, "from": t.origin}
            for t in targets.values()
        }
        click.echo(json.dumps(rows, indent=1))
        return
    width = max(map(len, targets), default=0)
    for target in targets.values():
        click.echo(
            f"{target.name:<{width}}  {target.about}" + (f"  [{target.origin}]" if target.origin == "project" else "")
        )


@command.command()
@click.argument("name")
def explain(name: str) -> None:
    """What NAME writes, how its job starts, in which order it numbers ranks, and what it refuses."""
    from gpuops.render import abridged
    from gpuops.report.page import Page

    target, page = catalogue().targets()[name], Page()
    click.echo(f"{target.name}   {target.origin}   {target.path}")
    rows = [("", target.about), ("writes", ", ".join(target.files)), ("start", target.start)]
    rows += [("order", " or ".join(target.orders) or "the layout's own"), ("rules of", target.engine)]
    rows += [("refuses", rule.because) for rule in target.rules] + ([("note", target.note)] if target.note else [])
    for label, text in rows:
        for line in page.labelled(f"  {label}", abridged(text), 12):
            click.echo(line)
