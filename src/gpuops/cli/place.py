"""``gpuops place``: which rank runs on which node and GPU, and over which links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.asking import declares
from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, tell
from gpuops.requests import PlaceRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@asks(PlaceRequest)
@declares
@click.option("--show", is_flag=True, help="Print the grid even if --svg is given.")
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write the grid as SVG.")
@shows("table", "json", "svg")
@reaches(saved=True, saved_inventory=True)
@exits()
def command(cluster: Cluster, request: PlaceRequest, output: Output, svg: Path | None, *, show: bool) -> None:
    """Assign every rank of a layout to a healthy GPU.

    gpuops places the ranks so that the traffic of all axes takes the least time. A job goes into the NVLink domain,
    rack or unit that it fits best; the output lists the traffic that must cross the spine. Excluded nodes and the
    reasons are listed on stderr. --force overrides rules that only protect speed, and allows tp, cp and ep groups to be
    split. Nodes that you list with their number of GPUs (gpu[01-04]:8) are not queried and need no inventory.
    """
    from gpuops.report import grid
    from gpuops.report.svg import grid as drawing

    placement = carry_out(cluster, request)
    if placement.moved:
        from gpuops.operations.replan import restart

        tell(restart(request, placement))
    if svg is not None:
        output = output.with_file(svg, "svg", quiet=not show)
    output.publish(
        table=lambda page: grid.lines(placement, page),
        json=lambda _: placement.to_json(),
        svg=lambda _: drawing.draw(placement),
    )
