"""``gpuops ping``: which nodes answer over SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@shows("table", "json")
@reaches
@exits(incomplete="a node did not answer")
def command(cluster: Cluster, output: Output) -> int:
    """Connect to every node and list which ones answer.

    gpuops logs in to each node and runs `true` there.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import answers
    from gpuops.requests import PingRequest

    result = carry_out(cluster, PingRequest())
    output.publish(table=lambda page: answers.ping(result, page), json=lambda _: result.to_json())
    return exit_code(result)
