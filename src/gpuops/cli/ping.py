"""``gpuops ping``: which nodes answer over SSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import carry_out, reaches
from gpuops.cli._terminal import page, print_lines

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@reaches
def command(cluster: Cluster) -> int:
    """Reach every node, run `true` there, and say who answered.

    Exit 0 if all did, 3 if any did not.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import answers
    from gpuops.requests import PingRequest

    result = carry_out(cluster, PingRequest())
    print_lines(answers.ping(result, page()))
    return exit_code(result)
