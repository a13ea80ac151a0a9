"""``gpuops allreduce``: measure every link between GPUs and nodes, and name the part that is slow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._common.options import asks, carry_out, reaches
from gpuops.cli._common.terminal import Output, PatternOrCommand, exits, shows
from gpuops.requests import MeasureRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster


@click.group(cls=PatternOrCommand, package=__name__)
@asks(MeasureRequest)
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write a heat map of the rails.")
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR", help="Save answers and results for --from.")
@shows("table", "json", "svg")
@reaches(pattern=False, saved=True)
@exits(failed="a part is blamed", incomplete="a node could not be measured", locked="")
def command(cluster: Cluster, request: MeasureRequest, output: Output, *, svg: Path | None, save: Path | None) -> int:
    """Measure all GPU and node links and name slow parts.

    gpuops measures only nodes that pass the quick checks and are proved idle. It needs a few rounds, each with many
    groups at once: rails first, then full nodes, then groups. A part is blamed only if it is slow with several
    partners; one slow pair blames no part. If a host or group has the name of a COMMAND, select it with --limit.
    """
    from gpuops.reasons import exit_code
    from gpuops.report.all_reduce.measurement import render
    from gpuops.report.answers import save_facts
    from gpuops.report.svg import heatmap

    measurement = carry_out(cluster, replace(request, keep_answers=save is not None))
    if save is not None:
        save_facts(measurement.facts, save, measurement.excluded, cluster.hosts)
    if svg is not None:
        output = output.with_file(svg, "svg")
    output.publish(
        table=lambda page: render(measurement, page),
        json=lambda _: measurement.to_json(),
        svg=lambda _: heatmap.draw(measurement.evidence),
    )
    return exit_code(measurement)
