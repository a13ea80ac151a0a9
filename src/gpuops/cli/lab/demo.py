"""``gpuops lab demo``: a cluster with faults, and reports that must name exactly these faults."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import click

from gpuops.cli._common.terminal import Command, exits, tell
from gpuops.cli.lab import DEMO_FOLDER, show_faults

_LONGEST_MINUTES = 10  # that the demo itself may take on a slow machine


@click.command(cls=Command)
@click.option(
    "--minutes", default=15, show_default=True, metavar="N", help="Leave the hosts running for N minutes; 0 stops them."
)
@click.pass_context
@exits(failed="a report does not match the injected faults")
def command(ctx: click.Context, minutes: int) -> None:
    """Find the injected faults of a simulated cluster.

    The demo starts 8 H100 hosts with faults, one of them unreachable, and validates and measures them. It succeeds only
    if both reports name exactly the injected faults. The hosts stay for a while, so that you can run the commands that
    the reports propose; gpuops lab down stops them.
    """
    from gpuops.lab import cluster
    from gpuops.lab.demo import MACHINE, NODES, PLANTED, SLOW

    cluster.down(DEMO_FOLDER)
    click.echo(f"lab: {NODES} {MACHINE} hosts with these faults")
    faults = [*(planted.fault for planted in PLANTED), SLOW]
    show_faults(cluster.up(DEMO_FOLDER, MACHINE, NODES, faults, minutes=minutes + _LONGEST_MINUTES))
    stays = False
    try:
        wrong = _demonstrate(DEMO_FOLDER)
        stays = bool(minutes)
    finally:
        if not stays:
            cluster.down(DEMO_FOLDER)
    for sentence in wrong:
        tell(sentence)
    click.echo(
        "\nthe reports differ from the injected faults" if wrong else "\nboth reports name exactly the injected faults"
    )
    if stays:
        cluster.end_after(DEMO_FOLDER, minutes)
        _invite(minutes)
    ctx.exit(1 if wrong else 0)


def _invite(minutes: int) -> None:
    """Say how long the hosts stay, and how a shell finds gpuops."""
    click.echo(f"the hosts stay for {minutes} min: run what the reports propose; to stop them: gpuops lab down")
    if shutil.which("gpuops") is None:
        programs = shlex.quote(str(Path(sys.executable).parent))
        click.echo(f"to have it on PATH:  export PATH={programs}:$PATH")


def _demonstrate(folder: Path) -> list[str]:
    """Run the commands on the lab in ``folder``; return where their reports differ from the injected faults.

    They are shown as they are run, because the store keeps them as they are run.
    """
    from gpuops.lab.demo import all_reduce_words, blamed_otherwise, differences, run, validate_words
    from gpuops.lab.places import Places

    places = Places(folder)
    words = validate_words(places)
    click.echo(f"\n$ {shlex.join(words)}")
    wrong = differences(run(words), places.report)
    words = all_reduce_words(places)
    click.echo(f"\n$ {shlex.join(words)}")
    return wrong + blamed_otherwise(run(words), places.figures)
