"""``gpuops allreduce loopback``: each HCA with itself, to tell a slow HCA or slot from a slow cable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows
from gpuops.requests import LoopbackRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(name="loopback", cls=Command)
@asks(LoopbackRequest)
@shows("table", "json")
@reaches
@exits(failed="an HCA is slow with itself", incomplete="a node or HCA could not be measured", locked="")
def command(cluster: Cluster, request: LoopbackRequest, output: Output) -> int:
    """Measure each HCA of idle nodes with itself.

    Both ends of ib_write_bw run on the same HCA, one HCA of a node at a time and on all nodes at once. No cable and no
    switch is involved: an HCA that is slow here too has a bad PCIe link, slot or firmware, and one that is slow only
    with others has a bad optic, cable or switch port. Nodes that fail a check are measured too. ib_write_bw (package
    perftest) must be on the nodes; nothing is installed.
    """
    from gpuops.reasons import exit_code
    from gpuops.report.all_reduce import loopback

    result = carry_out(cluster, request)
    output.publish(table=lambda page: loopback.lines(result, page), json=lambda _: result.to_json())
    return exit_code(result)
