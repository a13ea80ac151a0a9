"""``gpuops lab demo``: a cluster with faults, and reports that must name exactly these."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from gpuops.cli.lab import FOLDER, show_faults


@click.command()
@click.pass_context
def command(ctx: click.Context) -> None:
    """Bring up 8 H100 hosts with faults and one that is unreachable, look at them, measure them, and take them down.

    Ends with 0 only if validate and allreduce named exactly the injected faults.
    """
    from gpuops.lab import cluster
    from gpuops.lab.demo import MACHINE, NODES, PLANTED, SLOW

    folder = FOLDER.with_name("demo")
    click.echo(f"a lab of {NODES} {MACHINE} hosts, with")
    show_faults(cluster.up(folder, MACHINE, NODES, [*(planted.fault for planted in PLANTED), SLOW]))
    try:
        wrong = _demonstrate(folder)
    finally:
        cluster.down(folder)
    for sentence in wrong:
        click.echo(f"gpuops: {sentence}", err=True)
    click.echo("\nthe reports " + ("do not name what was planted" if wrong else "name exactly what was planted"))
    ctx.exit(1 if wrong else 0)


def _demonstrate(folder: Path) -> list[str]:
    """Run the verbs on the lab in ``folder``; what they reported otherwise than was injected."""
    from gpuops.lab.demo import all_reduce, blamed_otherwise, differences, validate

    inventory = folder / "inventory.yml"
    with TemporaryDirectory() as place:
        report, figures = Path(place, "report.json"), Path(place, "figures")
        click.echo(f"\n$ gpuops validate -i {inventory}")
        wrong = differences(validate(inventory, report), report)
        click.echo(f"\n$ gpuops allreduce -i {inventory}")
        return wrong + blamed_otherwise(all_reduce(inventory, figures), figures)
