"""``gpuops checks``: which checks there are, and what each asks, expects, catches and advises."""

from __future__ import annotations

import json

import click

from gpuops.cli._common.options import catalogue, completes
from gpuops.cli._common.terminal import Commands, Output, page, print_lines, shows


@click.group(cls=Commands)
def command() -> None:
    """List and explain the built-in and project checks."""


@command.command("list")
@shows("table", "json")
def list_(output: Output) -> None:
    """List the checks by level, and where each comes from.

    A file in the checks/ directory of your project hides the built-in check of the same name.
    """
    from gpuops.report import checks

    rows = checks.by_level(catalogue().checks().values())
    document = {"schema": "gpuops.checks/1", "checks": [checks.document(each) for each in rows]}
    output.publish(table=lambda page: checks.rows(rows, page), json=lambda _: json.dumps(document, indent=2))


@command.command()
@click.argument("name", shell_complete=completes("checks"))
@click.option("--profile", "profile_name", metavar="NAME", shell_complete=completes("profiles"),
              help="Show only what this profile expects.")  # fmt: skip
def explain(name: str, profile_name: str | None) -> None:
    """Show what a check asks, expects and catches.

    It also shows what to do about a finding.
    """
    from gpuops.project import shortest
    from gpuops.report import checks

    content = catalogue()
    check, profiles = content.checks()[name], content.profiles()
    expecting = [profiles[profile_name]] if profile_name else profiles.values()
    print_lines(checks.explanation(check, expecting, str(shortest(check.path)), page()))
