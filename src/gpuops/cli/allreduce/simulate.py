"""``gpuops allreduce simulate``: faults injected into a simulated fabric, and what isolation makes of them."""

from __future__ import annotations

import json
from typing import Any

import click

from gpuops.cli._terminal import page, print_lines


@click.command(name="simulate")
@click.option("--nodes", type=click.IntRange(1, 16384), default=128, show_default=True, help="Nodes of the fabric.")
@click.option("--gpus", type=click.IntRange(1, 16), default=8, show_default=True, help="GPUs of a node, and its NICs.")
@click.option("--unit", type=click.IntRange(1), default=16, show_default=True, help="Nodes that share their leaves.")
@click.option("--leaves", type=click.IntRange(1), metavar="N", help="Leaves of a unit. [default: one for each rail]")
@click.option(
    "--oversubscription",
    type=click.FloatRange(1, 16),
    default=1.0,
    show_default=True,
    help="A leaf's bandwidth to nodes, as a multiple of that to the spine.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Draws faults and disturbances.")
@click.option("--fault", "faults", multiple=True, metavar="PART:slow=PERCENT|hang", help="gpu017:mlx5_3:slow=30, ...")
@click.option("--random-faults", type=click.IntRange(0, 100), default=0, metavar="K", help="Draw K parts by the seed.")
@click.option(
    "--no-leaf-map",
    "leaf_map",
    flag_value=False,
    default=True,
    help="Isolate without knowing which port is on which leaf.",
)
@click.option(
    "--no-disturbances",
    "disturbances",
    flag_value=False,
    default=True,
    help="No collisions, other tenants or drift; little noise.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document: planted, accused, rounds, contention.")
def command(*, as_json: bool, **options: Any) -> int:
    """Inject faults into a simulated fabric, measure it as a real one would be, and say who is accused.

    A part is a node (gpu017), its GPU's NVLink (gpu017:gpu3), an HCA (gpu017:mlx5_3), a leaf (leaf:L3), or what joins
    a rail of a unit to the spine (unit:U2/rail3). It is 1 to 99 % slow, or it hangs.

    \b
    Exit codes: 0 every part was named and no other, 1 not so, 2 wrong input.
    """  # noqa: D301 - click needs the character itself
    from gpuops.operations.simulate import simulate
    from gpuops.report import simulation

    trial = simulate(**options)
    print_lines([json.dumps(simulation.document(trial), indent=1)] if as_json else simulation.lines(trial, page()))
    return 1 if trial.missed or trial.false_positives else 0
