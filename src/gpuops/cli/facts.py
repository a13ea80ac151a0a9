"""``gpuops facts``: everything that the probes read on each node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Command, Output, exits, shows, tell, tell_excluded
from gpuops.errors import format_count
from gpuops.requests import FactsRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command(cls=Command)
@asks(FactsRequest)
@click.option(
    "--save", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Save the answers for --from."
)
@shows("table", "json")
@reaches
@exits(incomplete="a node was unreachable")
def command(cluster: Cluster, request: FactsRequest, output: Output, save: Path | None) -> int:
    """Collect facts from every node in one round trip.

    All quick probes run; slow ones run only with --probe. With --save, the answers are saved as they are, with what the
    inventory says about each machine: profile, rack, fabric, power and expect. For a node that did not answer, the
    reason is saved. `gpuops validate --from DIR` can check the answers again later, without a network, and with newer
    parsers and checks.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import values
    from gpuops.report.answers import save_facts

    result = carry_out(cluster, replace(request, keep_answers=save is not None))
    if save is not None:
        save_facts(result.values, save, result.excluded, cluster.hosts)
        tell(f"{format_count(len(result.values), 'node')} saved in {save}")
    if save is None or output.files or output.form == "json":
        output.publish(table=lambda _: values.facts_lines(result.values), json=lambda _: values.facts_to_json(result))
    tell_excluded(result.excluded.values())
    return exit_code(result)
