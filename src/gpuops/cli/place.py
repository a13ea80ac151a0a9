"""``gpuops place``: which rank runs on which node and GPU, and over which links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, reaches
from gpuops.cli._terminal import page, print_lines
from gpuops.requests import PlaceRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@reaches(saved=True, saved_inventory=True)
@asks(PlaceRequest)
@click.option("--show", "form", flag_value="grid", help="Draw the grid of nodes and GPUs (the default).")
@click.option("--json", "form", flag_value="json", help="One JSON document: ranks, groups, nodes, spares.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw the grid there.")
def command(cluster: Cluster, request: PlaceRequest, form: str | None, svg: Path | None) -> None:
    """Place every rank of a layout on a healthy node's GPU, and show it.

    Tensor-parallel groups stay inside NVLink, neighbouring pipeline stages on nodes that share their leaf switches,
    data parallelism goes across. Excluded nodes and the reasons are listed on stderr. With --force, rules that cost
    speed and break nothing are overridden.
    """
    from gpuops.report import grid, grid_svg
    from gpuops.report.output import write

    placement = carry_out(cluster, request)
    if svg is not None:
        write(grid_svg.draw(placement), svg)
    if form == "json":
        click.echo(placement.to_json())
    elif form == "grid" or svg is None:
        print_lines(grid.lines(placement, page()))
