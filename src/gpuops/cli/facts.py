"""``gpuops facts``: everything that the probes know of each node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, reaches
from gpuops.cli._terminal import print_lines, tell_excluded
from gpuops.requests import FactsRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.command()
@reaches
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a readable tree.")
@click.option("--save", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep them, for --from.")
@asks(FactsRequest)
def command(cluster: Cluster, request: FactsRequest, *, as_json: bool, save: Path | None) -> int:
    """Collect facts of every node in one round trip each.

    What is saved are the nodes' own answers, so that `gpuops validate --from DIR` can judge them again later, with
    newer parsers and checks and without any network.
    """
    from gpuops.reasons import exit_code
    from gpuops.report import values
    from gpuops.report.output import save_facts

    result = carry_out(cluster, replace(request, keep_answers=save is not None))
    if save is not None:
        save_facts(result.values, save)
        click.echo(f"{len(result.values)} nodes saved in {save}", err=True)
    else:
        print_lines([values.facts_to_json(result.values)] if as_json else values.facts_lines(result.values))
    tell_excluded(result.excluded.values())
    return exit_code(result)
