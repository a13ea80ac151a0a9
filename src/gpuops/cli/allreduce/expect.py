"""``gpuops allreduce expect``: what an all-reduce should give on these machines, and the formula that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, reaches
from gpuops.cli._terminal import page, print_lines
from gpuops.requests import ExpectRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(name="expect")
@reaches(saved=True, saved_inventory=True)
@asks(ExpectRequest)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def command(cluster: Cluster, request: ExpectRequest, *, as_json: bool) -> None:
    """Show what an all-reduce should give: each figure with its formula and the source of its numbers.

    A node whose profile the inventory names is not asked anything. Without --gib the payload is the least that can be
    judged, 1 GiB or 8 MiB a rank. Where saved facts hold a measurement, the efficiency that it shows counts.
    """
    from gpuops.report import expected

    result = carry_out(cluster, request)
    print_lines([result.to_json()] if as_json else expected.lines(result.classes, page()))
