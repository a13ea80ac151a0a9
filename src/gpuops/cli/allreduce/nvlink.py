"""``gpuops allreduce nvlink``: the gain from NVLink on these nodes, in an all-reduce and in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, tell
from gpuops.collective.request import NVLINK_ENGINES
from gpuops.requests import NvlinkRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(name="nvlink", cls=Command)
@click.option(
    "--engine",
    type=click.Choice(["auto", *NVLINK_ENGINES]),
    default="auto",
    show_default=True,
    help="nccl: the nodes' own libnccl.so.2; nccl-tests: all_reduce_perf.",
)
@asks(NvlinkRequest, "engine")
@shows("table", "json")
@reaches
@exits(incomplete="a node could not be measured", locked="")
def command(cluster: Cluster, request: NvlinkRequest, output: Output) -> int:
    """Measure the gain from NVLink on idle nodes.

    The GPUs of each node are measured with NVLink and without it (NCCL_P2P_DISABLE=1). With --train, a GPT of the size
    of GPT-2 is trained in three ways: DataParallel, DistributedDataParallel, and DistributedDataParallel without
    NVLink. Nothing is installed on the nodes.
    """
    from gpuops.reasons import exit_code
    from gpuops.report.all_reduce import nvlink

    comparison = carry_out(cluster, request)
    for node, excluded in comparison.excluded.items():
        tell(f"excluded: {node}: {excluded.why}")
    output.publish(table=lambda page: nvlink.lines(comparison, page), json=lambda _: comparison.to_json())
    return exit_code(comparison)
