"""``gpuops place``: which rank runs on which node and GPU, and over which links."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._placing import Placing, placing_options

if TYPE_CHECKING:
    from gpuops.placement import Placement


@click.command()
@placing_options
@click.option("--show", "form", flag_value="grid", help="Draw the grid of nodes and GPUs (the default).")
@click.option("--json", "form", flag_value="json", help="One JSON document: ranks, groups, nodes, spares.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw the grid there.")
def command(plan: Placing, form: str | None, svg: Path | None) -> None:
    """Place every rank of a layout on a healthy node's GPU, and show it.

    Tensor-parallel groups stay inside NVLink, neighbouring pipeline stages on nodes that share their leaf switches,
    data parallelism goes across. What is left out, and why, is told on stderr.
    """
    placement = plan.placement()
    if svg is not None:
        from gpuops.report.grid_svg import draw
        from gpuops.report.output import write

        write(draw(placement), svg)
    if form == "json":
        _print_json(placement)
    elif form == "grid" or svg is None:
        _print_grid(placement)


def _print_json(placement: Placement) -> None:
    import json

    click.echo(json.dumps(placement.to_document(), indent=1))


def _print_grid(placement: Placement) -> None:
    from gpuops.report.grid import lines
    from gpuops.report.page import Page

    for line in lines(placement, Page.of(sys.stdout)):
        click.echo(line)
