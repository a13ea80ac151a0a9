"""``gpuops allreduce sweep``: one operation at many sizes, and the crossover from latency to bandwidth."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows
from gpuops.collective.request import SWEEP_SCOPES
from gpuops.requests import SweepRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster

_POWERS = {"": 0, "K": 10, "M": 20, "G": 30}


def _bytes(_ctx: object, _param: object, text: str | None) -> int | None:
    """Return the bytes of ``1K``, ``64M``, ``8GiB`` or a plain number, as nccl-tests reads them: K is 1024."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,12})\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise click.BadParameter(f'"{text}" is not a size; expected 1K, 64M, 8G or bytes')
    return int(match[1]) << _POWERS[match[2].upper()]


_size = functools.partial(click.option, metavar="SIZE", callback=_bytes)


@click.command(name="sweep", cls=Command)
@click.option(
    "--scope", type=click.Choice(SWEEP_SCOPES), help="Within each node, or all nodes together (default: group)."
)
@_size("--min-size", default="1K", show_default=True, help="Smallest size; each one is twice the one before.")
@_size("--max-size", help="Largest size (default: 1G or more; 64M over tcp).")
@asks(SweepRequest)
@shows("table", "json", "svg")
@reaches
@exits(failed="sums are wrong, or a network test failed", incomplete="a node could not be measured", locked="")
def command(cluster: Cluster, request: SweepRequest, output: Output) -> int:
    """Measure bandwidth by size and show the latency crossover.

    An all-reduce (or --operation) runs at sizes from 1 KiB on, between all idle nodes or within each. The table
    contains the time and the bandwidths of each size as nccl-tests defines them. Below the crossover, which is the size
    with half of the peak bandwidth, fewer and larger operations make a job faster; above it, only more bandwidth does.
    """
    from gpuops.reasons import exit_code
    from gpuops.report.sweep import svg, text

    result = carry_out(cluster, request)
    output.publish(
        table=lambda page: text.lines(result, page),
        json=lambda _: result.to_json(),
        svg=lambda _: svg.draw(result),
    )
    return exit_code(result)
