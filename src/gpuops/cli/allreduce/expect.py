"""``gpuops allreduce expect``: what an all-reduce should give on these machines, with the formula."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows
from gpuops.requests import ExpectRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(name="expect", cls=Command)
@asks(ExpectRequest)
@shows("table", "json")
@reaches(saved=True, saved_inventory=True)
@exits(incomplete="a node has no GPU")
def command(cluster: Cluster, request: ExpectRequest, output: Output) -> int:
    """Show the bandwidth to expect, with formulas and sources.

    gpuops does not connect to a node if the inventory names its profile. Without --gib the payload is the smallest one
    that can be judged: 1 GiB, or 8 MiB per rank if that is more. If saved facts contain a measurement, its efficiency
    is used.
    """
    from gpuops.reasons import exit_code
    from gpuops.report.all_reduce import expected

    result = carry_out(cluster, request)
    output.publish(table=lambda page: expected.lines(result.classes, page), json=lambda _: result.to_json())
    return exit_code(result)
