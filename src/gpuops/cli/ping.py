"""``gpuops ping``: which nodes answer over SSH."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options
from gpuops.cli._outcomes import exit_code, reasons

if TYPE_CHECKING:
    from gpuops.fleet import Outcome
    from gpuops.shell import Completed


@click.command()
@target_options
def command(target: Target) -> int:
    """Reach every node, run `true` there, and say who answered.

    Exit 0 if all did, 3 if any did not.
    """
    from gpuops.shell import Command

    outcomes = target.each(lambda transport, _: transport.run(Command(("true",))), "reaching nodes")
    for line in _lines(outcomes):
        click.echo(line)
    return exit_code(outcomes)


def _lines(outcomes: list[Outcome[Completed]]) -> list[str]:
    from statistics import median

    from gpuops.report.page import Page, clean, fold

    page = Page.of(sys.stdout)
    reached = [o for o in outcomes if o.error is None]
    lines: list[str] = []
    if reached:
        said = f"{fold(o.node for o in reached)}  median {median(o.seconds for o in reached):.2f} s"
        lines += page.labelled(f"OK     {len(reached):>4}", said, 13)
    for reason, nodes in reasons(outcomes).items():
        lines += page.labelled(f"FAILED {len(nodes):>4}", f"{fold(nodes)}  {clean(reason)}", 13)
    return lines
