"""``gpuops topology``: which GPUs and NICs of a node are connected by what, and what that means for training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows
from gpuops.requests import TopologyRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@asks(TopologyRequest)
@shows("table", "json", "svg")
@reaches(saved=True)
@exits(incomplete="a node, or a part of one, is unknown")
def command(cluster: Cluster, request: TopologyRequest, output: Output) -> int:
    """Show how GPUs and NICs are connected within nodes.

    It lists the slot, the NVLinks and the nearest NIC of each GPU, the link of each pair, and its bandwidth. Below are
    the minimum times to exchange the gradients of a model. Identical nodes are shown once. Nothing is measured; gpuops
    allreduce does that.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import topology
    from gpuops.report.svg import topology as drawing

    result = carry_out(cluster, request)
    output.publish(
        table=lambda page: topology.lines(result, page),
        json=lambda _: result.to_json(),
        svg=lambda _: drawing.draw(result),
    )
    return exit_code(result)
