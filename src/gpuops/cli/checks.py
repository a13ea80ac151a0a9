"""``gpuops checks``: which checks there are, and what each asks, expects, catches and says to do."""

from __future__ import annotations

import json

import click

from gpuops.cli._options import catalogue
from gpuops.cli._terminal import page, print_lines


@click.group()
def command() -> None:
    """List the checks, and explain each."""


@command.command("list")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def list_(form: str) -> None:
    """Every check, mildest level first, and where it comes from.

    A file in the checks/ folder of your project hides the built-in check of the same name.
    """
    from gpuops.report import checks

    known = checks.by_level(catalogue().checks().values())
    as_json = form == "json"
    print_lines([json.dumps([checks.document(each) for each in known], indent=2)] if as_json else checks.rows(known))


@command.command()
@click.argument("name")
@click.option("--profile", "profile_name", metavar="NAME", help="Show what this profile expects, not what all do.")
def explain(name: str, profile_name: str | None) -> None:
    """What the check NAME asks of a node, what it expects, what it catches, and what to do about it."""
    from gpuops.project import shortest
    from gpuops.report import checks

    content = catalogue()
    check, profiles = content.checks()[name], content.profiles()
    expecting = [profiles[profile_name]] if profile_name else profiles.values()
    print_lines(checks.explanation(check, expecting, str(shortest(check.path)), page()))
