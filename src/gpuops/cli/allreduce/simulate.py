"""``gpuops allreduce simulate``: inject faults into a simulated fabric and test the isolation."""

from __future__ import annotations

import json
from typing import Any

import click

from gpuops.cli._terminal import Command, Output, exits, shows


@click.command(name="simulate", cls=Command)
@click.option(
    "--nodes", type=click.IntRange(1, 16384), default=128, show_default=True, metavar="N", help="Nodes of the fabric."
)
@click.option(
    "--gpus", type=click.IntRange(1, 16), default=8, show_default=True, metavar="N", help="GPUs per node, and NICs."
)
@click.option(
    "--unit", type=click.IntRange(1), default=16, show_default=True, metavar="N", help="Nodes that share leaf switches."
)
@click.option("--leaves", type=click.IntRange(1), metavar="N", help="Leaf switches per unit (one for each rail).")
@click.option(
    "--oversubscription",
    type=click.FloatRange(1, 16),
    default=1.0,
    show_default=True,
    metavar="RATIO",
    help="A leaf's bandwidth to its nodes, divided by that to the spine.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed for faults and disturbances.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="PART:slow=PERCENT|hang",
    help="Inject this fault, such as gpu017:mlx5_3:slow=30; repeatable.",
)
@click.option("--random-faults", type=click.IntRange(0, 100), default=0, metavar="K", help="Inject K random faults.")
@click.option(
    "--no-leaf-map",
    "leaf_map",
    flag_value=False,
    default=True,
    help="Isolate without the map from ports to leaves.",
)
@click.option(
    "--no-disturbances",
    "disturbances",
    flag_value=False,
    default=True,
    help="Simulate no collisions, other tenants or drift, and little noise.",
)
@shows("table", "json")
@exits(failed="a fault was missed, or a healthy part was blamed")
def command(*, output: Output, **options: Any) -> int:
    """Inject faults into a simulated fabric and find them.

    The simulated fabric is measured as a real one would be. A part is a node (gpu017), the NVLink of a GPU
    (gpu017:gpu3), an HCA (gpu017:mlx5_3), a leaf (leaf:L3), or the uplinks of a rail of a unit (unit:U2/rail3). It is 1
    to 99 % slow, or it hangs.
    """
    from gpuops.operations.simulate import simulate
    from gpuops.report import simulation

    trial = simulate(**options)
    output.publish(
        table=lambda page: simulation.lines(trial, page),
        json=lambda _: json.dumps(simulation.document(trial), indent=1),
    )
    return 1 if trial.missed or trial.false_positives else 0
