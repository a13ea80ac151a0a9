"""``gpuops preflight -- LAUNCH COMMAND``: why can't this job start, and which line to change."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, target_options, tell

if TYPE_CHECKING:
    from gpuops.collective.preflight.diagnosis import Diagnosis
    from gpuops.collective.preflight.launch_command import LaunchCommand
    from gpuops.inventory import Host


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="-- LAUNCH COMMAND…", type=click.UNPROCESSED)
@click.option(
    "--force-busy", default="", metavar="HOSTS", help="Try the all-reduce on these hosts though used; name each."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@target_options
def command(target: Target, words: tuple[str, ...], force_busy: str, *, as_json: bool) -> int:
    """Say within a minute why a job cannot start, and which line to change.

    The command after -- is read as its launcher would (torchrun, deepspeed, mpirun, srun); it is not run. On the hosts
    that it names, else on all that are chosen, this looks in the job's own way (ssh, or srun) at the program and its
    versions, locked memory, interfaces, the place where ranks meet, GIDs and the network between all nodes. Then it
    runs one all-reduce on exactly those nodes, unless somebody computes there.

    \b
    Exit codes: 0 nothing is in the way, 1 something is, 2 wrong input, 3 a node does not answer,
                130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.cli._measuring import named_hosts
    from gpuops.collective.preflight.launch_command import read_command

    began = time.monotonic()
    launch = read_command(words, _text, os.environ)
    hosts = _hosts(launch, target.hosts)
    report = _look(target, launch, hosts, named_hosts(force_busy, hosts))
    if as_json:
        click.echo(json.dumps({"hosts": [host.name for host in hosts], **asdict(report)}, indent=1))
    else:
        click.echo("\n".join(_lines(launch, hosts, report, time.monotonic() - began)))
    return report.exit_code


def _text(file: str) -> str:
    from gpuops.errors import InputError

    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: the hostfile cannot be read: {error}") from error


def _hosts(launch: LaunchCommand, chosen: list[Host]) -> list[Host]:
    """The hosts that the command names, in its order; all that are chosen where it names none."""
    known = {alias: host for host in chosen for alias in (host.address, host.name)}
    return [known[name] for name in launch.hosts if name in known] if launch.hosts else chosen


def _look(target: Target, launch: LaunchCommand, hosts: list[Host], forced: frozenset[str]) -> Diagnosis:
    from gpuops.cli._health import expected_of
    from gpuops.cli._life import scheduler_of
    from gpuops.cli._measuring import Rounds, pool_of, surroundings
    from gpuops.collective.preflight import causes
    from gpuops.collective.preflight.diagnosis import Diagnosis, Preflight
    from gpuops.collective.preflight.single_round import all_reduce

    report = Diagnosis()
    named = {name for host in target.hosts for name in (host.name, host.address)}
    report.add("hosts", causes.hosts(launch, named, len(hosts)), f"{len(hosts)} of the inventory")
    if not hosts:
        return report
    with scheduler_of(target) as scheduler, pool_of(target, hosts) as pool, Rounds() as rounds:
        return Preflight(
            launch,
            pool,
            surroundings(target, rounds, scheduler).watch_over(pool, expected_of(hosts, {}), forced),
            lambda left: all_reduce(left, launch.environment, tell),
            scheduler.slurm if launch.launcher == "srun" else None,
            rounds.show,
            report,
        ).run()


def _lines(launch: LaunchCommand, hosts: list[Host], report: Diagnosis, seconds: float) -> Iterator[str]:
    """The verdict of each step, then every cause with the line to change, the first to mend first."""
    from gpuops.report.page import Page, clean, fold

    page = Page.of(sys.stdout)
    yield from page.edges(f"preflight   {launch.launcher} on {fold(host.name for host in hosts)}", f"{seconds:.1f} s")
    yield ""
    for step in report.steps:
        word = {"ok": "ok", "fail": "FAIL", "skipped": "skipped"}[step.state]
        yield from page.labelled(f"  {step.name:<12} {word}", clean(step.said), 24)
    for cause in report.causes:
        yield ""
        yield from page.edges(f"{fold(cause.nodes) if cause.nodes else 'the command'}", cause.rung)
        yield from page.labelled("  why", clean(cause.why), 10)
        yield from page.labelled("  change", clean(cause.change), 10)
    yield ""
    first = clean(report.causes[0].change) if report.causes else ""
    yield from page.labelled("change this first", first, 19) if first else ("nothing is in the way",)
