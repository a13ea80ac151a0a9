"""``gpuops profiles diff``: the values that two profiles do not share."""

from __future__ import annotations

import json

import click

from gpuops.cli._common.options import catalogue, completes, current_project
from gpuops.cli._common.terminal import Command, Output, shows


@click.command(cls=Command)
@click.argument("one", shell_complete=completes("profiles"))
@click.argument("other", shell_complete=completes("profiles"))
@shows("table", "json")
def command(one: str, other: str, output: Output) -> None:
    """Compare the values of two profiles.

    ONE and OTHER are profiles or files. Only values are compared, not their sources and grades.
    """
    from gpuops.profile import chosen_profile
    from gpuops.report import profiles
    from gpuops.results.profiles import diff_document

    a, b = (chosen_profile(name, catalogue().profiles(), current_project()) for name in (one, other))
    output.publish(
        table=lambda page: profiles.diff_lines(a, b, page), json=lambda _: json.dumps(diff_document(a, b), indent=1)
    )
