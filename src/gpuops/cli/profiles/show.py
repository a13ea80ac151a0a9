"""``gpuops profiles show``: what a profile expects."""

from __future__ import annotations

import json

import click

from gpuops.cli._common.options import catalogue, completes, current_project
from gpuops.cli._common.terminal import Command, Output, shows


@click.command(cls=Command)
@click.argument("name", shell_complete=completes("profiles"))
@shows("table", "json", "yaml")
def command(name: str, output: Output) -> None:
    """Show what a profile expects, with grades and sources.

    NAME is a profile or a file. Values that it inherits from another profile are marked. The format yaml is a file for
    checks/profiles/, with the inherited values written out.
    """
    from gpuops.profile import chosen_profile
    from gpuops.report import profiles
    from gpuops.results.profiles import profile_document

    profile = chosen_profile(name, catalogue().profiles(), current_project())
    document = {"schema": "gpuops.profile/1", **profile_document(profile)}
    output.publish(
        table=lambda page: profiles.lines(profile, page),
        json=lambda _: json.dumps(document, indent=1),
        yaml=lambda _: profiles.to_yaml(profile),
    )
