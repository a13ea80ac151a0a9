"""``gpuops allreduce simulate``: inject faults into a simulated fabric and test the isolation."""

from __future__ import annotations

import functools
import json
from typing import Any

import click
from click.core import ParameterSource

from gpuops.cli._common.asking import Number, seconds_of
from gpuops.cli._common.options import OPTIONS
from gpuops.cli._common.terminal import Command, Output, exits, shows

_number = functools.partial(click.option, metavar="N", show_default=True)
_unless = functools.partial(click.option, flag_value=False, default=True)


@click.command(name="simulate", cls=Command)
@_number("--nodes", type=click.IntRange(1, 16384), default=128, help="Nodes of the fabric.")
@_number("--gpus", type=click.IntRange(1, 16), default=8, help="GPUs per node, and as many NICs.")
@_number("--unit", type=click.IntRange(1), default=16, help="Nodes that share leaf switches.")
@_number("--leaves", type=click.IntRange(1), help="Leaf switches per unit (default: one for each rail).")
@click.option(
    "--oversubscription",
    type=Number(1, 16),
    default=1.0,
    show_default=True,
    metavar="RATIO",
    help="A leaf's bandwidth to its nodes, divided by that to the spine.",
)
@_number("--seed", type=int, default=0, help="Seed for faults and disturbances.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="PART:slow=PERCENT|hang",
    help="Inject this fault, such as gpu017:mlx5_3:slow=30; repeatable.",
)
@click.option("--random-faults", type=click.IntRange(0, 100), default=0, metavar="K", help="Inject K random faults.")
@_unless("--no-leaf-map", "leaf_map", help="Isolate without the map from ports to leaves.")
@_unless("--no-disturbances", "disturbances", help="Simulate no collisions, other tenants or drift, and little noise.")
@click.option("--program", metavar="CMD", help="Measure the fabric of this program; see docs/allreduce.md.")
@click.option("--timeout", metavar="SECONDS", callback=seconds_of, default="60", help="Timeout for each line of CMD.")
@OPTIONS["confidence"]
@shows("table", "json")
@exits(
    failed="a fault was missed, a part is blamed wrongly, or a part of CMD's fabric is blamed",
    incomplete="a part is unclear",
)
def command(*, output: Output, program: str | None, timeout: float, confidence: float, **options: Any) -> int:
    """Inject faults into a simulated fabric and find them.

    The simulated fabric is measured as a real one would be. A part is a node (gpu017), the NVLink of a GPU
    (gpu017:gpu3), an HCA (gpu017:mlx5_3), a leaf (leaf:L3), or the uplinks of a rail of a unit (unit:U2/rail3). It is 1
    to 99 % slow, or it hangs.

    With --program, CMD measures a fabric of its own: another simulator, a recorded fleet, or real machines. It reads
    the groups of each round and prints their figures, one JSON document per line.
    """
    from gpuops.operations.simulate import simulate
    from gpuops.report.all_reduce import simulation

    if program is not None:
        return _isolate(output, program, timeout, confidence)
    trial = simulate(**options)
    output.publish(
        table=lambda page: simulation.lines(trial, page),
        json=lambda _: json.dumps(simulation.document(trial), indent=1),
    )
    return 1 if trial.missed or trial.false_positives else 0


def _isolate(output: Output, program: str, timeout: float, confidence: float) -> int:
    from gpuops.operations.simulate.program import simulate_program
    from gpuops.reasons import exit_code
    from gpuops.report.all_reduce import isolation

    context = click.get_current_context()
    own = {"program", "timeout", "confidence", "form", "as_json", "paths"}
    for name in context.params.keys() - own:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            context.fail(f"--program has a fabric of its own: it cannot be combined with options such as {name}")
    result = simulate_program(program, seconds=timeout, confidence=confidence)
    output.publish(table=lambda page: isolation.lines(result, page), json=lambda _: result.to_json())
    return exit_code(result)
