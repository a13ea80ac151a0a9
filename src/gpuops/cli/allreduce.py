"""``gpuops allreduce``: measure every link between GPUs and nodes, and name the part that is at fault."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli import _expect, _nvlink, _simulate
from gpuops.cli._measuring import measuring_options
from gpuops.cli._options import Target, target_options

if TYPE_CHECKING:
    from gpuops.collective.measurement import Measurement
    from gpuops.collective.request import MeasureRequest
    from gpuops.inventory import Host


@click.group(invoke_without_command=True)
@target_options
@measuring_options
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Write the rails' heat map there.")
@click.option("--json", "form", flag_value="json", help="One JSON document.")
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="DIR", help="Keep all answers and figures, for --from."
)
@click.option(
    "--from", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Judge saved figures; no network."
)
@click.pass_context
def command(
    ctx: click.Context,
    target: Target,
    request: MeasureRequest,
    svg: Path | None,
    form: str | None,
    save: Path | None,
    folder: Path | None,
) -> int | None:
    """Measure all links between GPUs and nodes in a few parallel rounds; name what is slow, and what to do.

    Only nodes that pass the quick checks and are proved idle are measured. Rail by rail first, then full nodes, then
    groups: a part is accused when it is slow with several partners, a pair that is slow once accuses nobody.

    \b
    Exit codes: 0 nobody is blamed, 1 somebody is, 2 wrong input, 3 a node could not be measured,
                130 interrupted.
    """  # noqa: D301 - click needs the character itself
    if ctx.invoked_subcommand is not None:
        return None
    from gpuops.reasons import EXIT_CODES

    request = replace(request, keep_answers=save is not None)
    measurement = _saved(target, folder) if folder else _measured(target, request)
    if save and not folder:
        from gpuops.cli.facts import write_all

        write_all(list(measurement.facts.values()), save)
    _publish(measurement, svg, form)
    return EXIT_CODES[measurement.conclusion()]


command.add_command(_expect.command)
command.add_command(_nvlink.command)
command.add_command(_simulate.command)


def _measured(target: Target, request: MeasureRequest) -> Measurement:
    from gpuops.cli._measuring import check_force_busy, gather, measure

    check_force_busy(request, target.hosts)
    facts_by_node, silent = gather(target, keep_answers=request.keep_answers)
    measurement = measure(target, facts_by_node, request)
    return replace(measurement, excluded={**silent, **measurement.excluded})


def _saved(target: Target, folder: Path) -> Measurement:
    from gpuops.cli._health import profiles_of, quick_probes
    from gpuops.cli._options import saved_host
    from gpuops.collective.expectations import Expectations
    from gpuops.collective.measurement import Measurement
    from gpuops.facts import load_folder
    from gpuops.isolation import blame
    from gpuops.isolation.node_evidence import all_reduce, evidence_of, node_evidence_of

    facts_by_node = {facts.node: facts for facts in load_folder(folder, quick_probes(all_reduce))}
    hosts: list[Host] = (
        target.judged_hosts if target.inventory else [saved_host(node, folder) for node in facts_by_node]
    )
    facts = {host.name: facts_by_node[host.name] for host in hosts if host.name in facts_by_node}
    measured, excluded = node_evidence_of(facts)
    evidence = evidence_of(measured)
    engine = next((own.engine for own in measured.values()), "none")
    expectations = Expectations(evidence.fabric, profiles_of(hosts, facts_by_node)).learnt_from(evidence)
    return Measurement(
        evidence,
        blame(evidence),
        engine,
        f"as saved in {folder}",
        excluded,
        {node: own.settings for node, own in measured.items()},
        expected={} if engine == "tcp" else expectations.of_evidence(evidence),
        facts=facts,
    )


def _publish(measurement: Measurement, svg: Path | None, form: str | None) -> None:
    from gpuops.report.allreduce import render
    from gpuops.report.output import write
    from gpuops.report.page import Page

    if svg:
        from gpuops.report.heatmap_svg import draw

        write(draw(measurement.evidence), svg)
    if form == "json":
        click.echo(measurement.to_json())
    else:
        click.echo(render(measurement, Page.of(sys.stdout)), nl=False)
