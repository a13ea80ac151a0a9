"""``gpuops profiles list``: every profile, with what it is for."""

from __future__ import annotations

import json

import click

from gpuops.cli._common.options import catalogue
from gpuops.cli._common.terminal import Command, Output, shows


@click.command(cls=Command)
@shows("table", "json")
def command(output: Output) -> None:
    """List the profiles.

    A file in the checks/profiles/ directory of your project hides the built-in profile of the same name.
    """
    from gpuops.report import content
    from gpuops.results.profiles import profile_document

    profiles = catalogue().profiles().values()
    document = {"schema": "gpuops.profiles/1", "profiles": {p.name: profile_document(p) for p in profiles}}
    output.publish(
        table=lambda page: content.table(((p.name, p.about, "") for p in profiles), page),
        json=lambda _: json.dumps(document, indent=1),
    )
