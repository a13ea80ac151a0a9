"""``gpuops plan``: which layout trains a model fastest on a cluster, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._common.asking import lasts, layout_of, sizes_of, stores
from gpuops.cli._common.options import OPTIONS, carry_out, reaches
from gpuops.cli._common.terminal import Output, PatternOrCommand, exits, shows
from gpuops.requests import PlanRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster

_file = click.Path(path_type=Path, dir_okay=False)
_count = click.IntRange(1)


@click.group(cls=PatternOrCommand, package=__name__)
@click.option("--model", type=_file, metavar="FILE", help="The model's config.json.")
@click.option(
    "--params", "sizes", callback=sizes_of, metavar="SIZES",
    help="Instead of --model: 70B, or params=70B,layers=80,hidden=8192,heads=64.",
)  # fmt: skip
@click.option(
    "--cluster",
    "machines",
    default="",
    metavar="SPEC",
    help="Nodes and profile, such as 16xhgx-h100, instead of an inventory.",
)
@click.option("--gbs", "global_batch", type=_count, metavar="N", help="Sequences per step (default: 8 for each GPU).")
@click.option(
    "--seq", "sequence", type=_count, metavar="N", help="Tokens per sequence (default: the model's, at most 8192)."
)
@click.option(
    "--precision",
    type=click.Choice(["bf16", "fp16", "fp8", "fp4"]),
    default="bf16",
    show_default=True,
    help="Number format of matrix products.",
)
@click.option(
    "--optimizer", type=click.Choice(["adam", "adam8bit", "sgd"]), default="adam", show_default=True, help="Optimizer."
)
@click.option("--framework", type=click.Choice(["megatron", "deepspeed", "fsdp"]), default="megatron",
              show_default=True, help="Training framework.")  # fmt: skip
@click.option("--strategy", default="", metavar="NAME", help="Only layouts of this strategy (see docs/strategies.md).")
@click.option("--why-not", multiple=True, metavar="DEGREES", help="Compare with these degrees; repeatable.")
@click.option(
    "--against", default="", callback=layout_of, metavar="LAYOUT", help="Compare with this layout or saved file."
)
@click.option("--explain", is_flag=True, help="Show where time and memory go, and which rules of the guide apply.")
@click.option("--save", type=_file, metavar="FILE",
              help="Write the first layout to FILE, for --layout FILE of place and render.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace FILE of --save if it exists.")
@click.option("--calibration", type=_file, metavar="FILE", help="Constants that gpuops plan calibrate wrote.")
@click.option("--top", type=click.IntRange(1, 100), default=5, show_default=True, metavar="N", help="Layouts to show.")
@OPTIONS["all_nodes"]
@OPTIONS["max_age"]
@lasts
@stores
@shows("table", "json")
@reaches(pattern=False, saved=True, saved_inventory=True)
@exits(failed="no layout fits, or that of --against does not")
def command(cluster: Cluster, output: Output, machines: str, save: Path | None, **options: Any) -> int:
    """Choose the fastest layout for a model on a cluster.

    A model of time and memory scores every valid layout. Without --cluster, gpuops plans for the nodes of the
    inventory, with their measured bandwidths if the store has them. Pass the first layout to place and render as
    --layout. If a host or group has the name of a COMMAND, select it with --limit.
    """
    from gpuops.reasons import exit_code
    from gpuops.report.output import refuse_existing, write
    from gpuops.report.planning import layouts

    given = click.get_current_context().params
    if machines and any(given.get(name) for name in ("inventory", "pattern", "limit", "folder", "local")):
        raise click.UsageError("--cluster excludes PATTERN and the options that choose hosts")
    refuse_existing([] if options.pop("overwrite") or save is None else [save], option="--save")
    result = carry_out(cluster, PlanRequest(cluster=machines, **options))
    output.publish(table=lambda page: layouts.lines(result, page), json=lambda _: result.to_json())
    if save is not None and result.best is not None:
        write(layouts.saved(result.best), save)
    return exit_code(result)
