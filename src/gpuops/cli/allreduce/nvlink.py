"""``gpuops allreduce nvlink``: what NVLink gains on these nodes, in an all-reduce and in training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, reaches
from gpuops.cli._terminal import page, print_lines, tell
from gpuops.requests import NvlinkRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(name="nvlink")
@reaches
@click.option(
    "--engine",
    type=click.Choice(["auto", "nccl", "nccl-tests"]),
    default="auto",
    show_default=True,
    help="nccl: the nodes' own libnccl.so.2; nccl-tests: all_reduce_perf.",
)
@asks(NvlinkRequest, "engine")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(cluster: Cluster, request: NvlinkRequest, *, as_json: bool) -> int:
    """Measure every idle node's GPUs with NVLink and without it (NCCL_P2P_DISABLE=1), and say what it saves.

    With --train a GPT of GPT-2's size is trained in three ways: DataParallel, DistributedDataParallel, and the same
    without NVLink. Nothing is installed on the nodes.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import nvlink

    comparison = carry_out(cluster, request)
    for node, excluded in comparison.excluded.items():
        tell(f"left out: {node}: {excluded.why}")
    print_lines([comparison.to_json()] if as_json else nvlink.lines(comparison, page()))
    return exit_code(comparison)
