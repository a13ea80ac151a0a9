"""``gpuops allreduce``: measure every link between GPUs and nodes, and name the part that is at fault."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli import _expect, _nvlink, _simulate
from gpuops.cli._measuring import Measuring, measuring_options
from gpuops.cli._options import Target, target_options

if TYPE_CHECKING:
    from gpuops.inventory import Host
    from gpuops.report.allreduce import AllReduce


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
    how: Measuring,
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
    report = _saved(target, folder) if folder else _measured(target, how, save)
    _publish(report, svg, form)
    return _exit_code(report)


command.add_command(_expect.command)
command.add_command(_nvlink.command)
command.add_command(_simulate.command)


def _measured(target: Target, how: Measuring, save: Path | None) -> AllReduce:
    from gpuops.cli._measuring import gather, measure
    from gpuops.report.allreduce import AllReduce

    wish = how.wish(target)
    known, silent = gather(target, keep_answers=save is not None)
    known, found = measure(target, known, wish)
    if save:
        from gpuops.cli.facts import write_all

        write_all(list(known.values()), save)
    expect = found.expect.learnt_from(found.evidence).of if found.expect else (lambda _group: None)
    return AllReduce(
        found.evidence,
        found.blame,
        found.engine,
        found.why,
        {**silent, **found.excluded},
        expect,
        found.settings,
        found.failures,
        interrupted=found.interrupted,
    )


def _saved(target: Target, folder: Path) -> AllReduce:
    from gpuops.cli._health import profiles_of, quick_probes
    from gpuops.cli._options import saved_host
    from gpuops.collective.expectations import Expectations
    from gpuops.facts import load_folder
    from gpuops.isolation import blame
    from gpuops.isolation.node_evidence import all_reduce, evidence_of, node_evidence_of
    from gpuops.report.allreduce import AllReduce

    known = {facts.node: facts for facts in load_folder(folder, quick_probes(all_reduce))}
    hosts: list[Host] = target.judged_hosts if target.inventory else [saved_host(node, folder) for node in known]
    measured, excluded = node_evidence_of({host.name: known[host.name] for host in hosts if host.name in known})
    evidence = evidence_of(measured)
    engine = next((own.engine for own in measured.values()), "none")
    settings = {node: own.settings for node, own in measured.items()}
    expected = Expectations(evidence.fabric, profiles_of(hosts, known)).learnt_from(evidence)
    expect = expected.of if engine != "tcp" else (lambda _group: None)
    return AllReduce(evidence, blame(evidence), engine, f"as saved in {folder}", excluded, expect, settings)


def _publish(report: AllReduce, svg: Path | None, form: str | None) -> None:
    from gpuops.report.allreduce import document, render
    from gpuops.report.output import write
    from gpuops.report.page import Page

    if svg:
        from gpuops.report.heatmap_svg import draw

        write(draw(report.evidence), svg)
    if form == "json":
        click.echo(json.dumps(document(report), indent=1))
    else:
        click.echo(render(report, Page.of(sys.stdout)), nl=False)


def _exit_code(report: AllReduce) -> int:
    if report.interrupted:
        return 130
    unknown = report.excluded or report.blame.unclear or report.blame.suspects
    return 1 if report.blame.blamed or report.failures else 3 if unknown else 0
