"""``gpuops lab demo``: a cluster with faults, and reports that must name exactly these faults."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from gpuops.cli._terminal import Command, exits, tell
from gpuops.cli.lab import FOLDER, show_faults


@click.command(cls=Command)
@click.pass_context
@exits(failed="a report does not match the injected faults")
def command(ctx: click.Context) -> None:
    """Find the injected faults of a simulated cluster.

    The demo starts 8 H100 hosts with faults, one of them unreachable, validates and measures them, and stops them
    again. It succeeds only if both reports name exactly the injected faults.
    """
    from gpuops.lab import cluster
    from gpuops.lab.demo import MACHINE, NODES, PLANTED, SLOW

    folder = FOLDER.with_name("demo")
    click.echo(f"lab: {NODES} {MACHINE} hosts with these faults")
    show_faults(cluster.up(folder, MACHINE, NODES, [*(planted.fault for planted in PLANTED), SLOW]))
    try:
        wrong = _demonstrate(folder)
    finally:
        cluster.down(folder)
    for sentence in wrong:
        tell(sentence)
    click.echo(
        "\nthe reports differ from the injected faults" if wrong else "\nboth reports name exactly the injected faults"
    )
    ctx.exit(1 if wrong else 0)


def _demonstrate(folder: Path) -> list[str]:
    """Run the commands on the lab in ``folder``; return where their reports differ from the injected faults."""
    from gpuops.lab.demo import all_reduce, blamed_otherwise, differences, validate

    inventory = folder / "inventory.yml"
    with TemporaryDirectory() as place:
        report, figures = Path(place, "report.json"), Path(place, "figures")
        click.echo(f"\n$ gpuops validate -i {inventory}")
        wrong = differences(validate(inventory, report), report)
        click.echo(f"\n$ gpuops allreduce -i {inventory}")
        return wrong + blamed_otherwise(all_reduce(inventory, figures), figures)
