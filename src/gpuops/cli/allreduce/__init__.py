"""``gpuops allreduce``: measure every link between GPUs and nodes, and name the part that is at fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import asks, carry_out, reaches
from gpuops.cli._terminal import Verbs
from gpuops.requests import MeasureRequest

if TYPE_CHECKING:
    from gpuops.cluster import Cluster
    from gpuops.collective.measurement import Measurement


@click.group(cls=Verbs, package=__name__, invoke_without_command=True)
@reaches(saved=True)
@asks(MeasureRequest)
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write the rails' heat map there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="DIR", help="Keep all answers and figures, for --from."
)
def command(
    cluster: Cluster,
    request: MeasureRequest,
    *,
    svg: Path | None,
    as_json: bool,
    save: Path | None,
) -> int:
    """Measure all links between GPUs and nodes in a few parallel rounds; name what is slow, and what to do.

    Only nodes that pass the quick checks and are proved idle are measured. Rail by rail first, then full nodes, then
    groups: a part is accused when it is slow with several partners, a pair that is slow once accuses nobody.

    \b
    Exit codes: 0 nobody is blamed, 1 somebody is, 2 wrong input, 3 a node could not be measured,
                130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.reasons import exit_code
    from gpuops.report.output import save_facts

    measurement = carry_out(cluster, replace(request, keep_answers=save is not None))
    if save is not None:
        save_facts(measurement.facts, save)
    _publish(measurement, svg, as_json=as_json)
    return exit_code(measurement)


def _publish(measurement: Measurement, svg: Path | None, *, as_json: bool) -> None:
    from gpuops.cli._terminal import page
    from gpuops.report import allreduce, heatmap_svg
    from gpuops.report.output import write

    if svg:
        write(heatmap_svg.draw(measurement.evidence), svg)
    click.echo(f"{measurement.to_json()}\n" if as_json else allreduce.render(measurement, page()), nl=False)
