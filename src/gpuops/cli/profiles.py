"""``gpuops profiles``: the machines that gpuops knows, and what it expects of each."""

from __future__ import annotations

import json

import click

from gpuops.cli._options import catalogue, completes
from gpuops.cli._terminal import Commands, Output, page, print_lines, shows


@click.group(cls=Commands)
def command() -> None:
    """List and explain the profiles of known machines."""


@command.command("list")
@shows("table", "json")
def list_(output: Output) -> None:
    """List the profiles.

    A file in the checks/profiles/ directory of your project hides the built-in profile of the same name.
    """
    from gpuops.report import content

    profiles = catalogue().profiles().values()
    document = {"schema": "gpuops.profiles/1", "profiles": {p.name: content.profile_document(p) for p in profiles}}
    output.publish(
        table=lambda page: content.table(((p.name, p.about, "") for p in profiles), page),
        json=lambda _: json.dumps(document, indent=1),
    )


@command.command()
@click.argument("name", shell_complete=completes("profiles"))
def explain(name: str) -> None:
    """Show what a profile expects, with grades and sources."""
    from gpuops.report import content

    print_lines(content.explain_profile(catalogue().profiles()[name], page()))
