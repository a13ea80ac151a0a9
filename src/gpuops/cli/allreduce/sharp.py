"""``gpuops allreduce sharp``: the gain from NVLink SHARP within nodes, and from SHARP switches between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows
from gpuops.collective.request import NVLINK_ENGINES
from gpuops.requests import SharpRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(name="sharp", cls=Command)
@click.option(
    "--engine",
    type=click.Choice(["auto", *NVLINK_ENGINES]),
    default="auto",
    show_default=True,
    help="nccl: the nodes' own libnccl.so.2; nccl-tests: all_reduce_perf.",
)
@asks(SharpRequest, "engine")
@shows("table", "json")
@reaches
@exits(
    failed="a feature that should help fails, or does not help", incomplete="a node could not be compared", locked=""
)
def command(cluster: Cluster, request: SharpRequest, output: Output) -> int:
    """Measure the gain from NVLink SHARP and from SHARP switches.

    Each idle node runs an all-reduce with NVLink SHARP (NVLS) and without it, three times in turn. Then all nodes
    together run with SHARP in the switches of the fabric (CollNet) and without it. NCCL's own log shows whether it used
    the feature; without those lines the result is unknown. Nothing is installed on the nodes.
    """
    from gpuops.reasons import exit_code
    from gpuops.report.all_reduce import sharp

    result = carry_out(cluster, request)
    output.publish(table=lambda page: sharp.lines(result, page), json=lambda _: result.to_json())
    return exit_code(result)
