"""``gpuops preflight -- LAUNCH COMMAND``: why can't this job start, and which line to change."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuops.cli._measuring import names_in
from gpuops.cli._options import Target, target_options, tell

if TYPE_CHECKING:
    from gpuops.collective.preflight.diagnosis import Diagnosis, StepLog
    from gpuops.collective.preflight.launch_command import LaunchCommand
    from gpuops.inventory import Host


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="-- LAUNCH COMMAND…", type=click.UNPROCESSED)
@click.option(
    "--force-busy",
    callback=names_in,
    metavar="HOSTS",
    help="Try the all-reduce on these hosts though used; name each.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@target_options
def command(target: Target, words: tuple[str, ...], force_busy: tuple[str, ...], *, as_json: bool) -> int:
    """Say within a minute why a job cannot start, and which line to change.

    The command after -- is read as its launcher would (torchrun, deepspeed, mpirun, srun); it is not run. On the hosts
    that it names, else on all that are chosen, this looks in the job's own way (ssh, or srun) at the program and its
    versions, locked memory, interfaces, the place where ranks meet, GIDs and the network between all nodes. Then it
    runs one all-reduce on exactly those nodes, unless somebody computes there.

    \b
    Exit codes: 0 nothing is in the way, 1 something is, 2 wrong input, 3 a node does not answer,
                130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.collective.preflight.diagnosis import StepLog
    from gpuops.collective.preflight.launch_command import read_command
    from gpuops.reasons import EXIT_CODES

    log = StepLog()
    launch = read_command(words, _text, os.environ)
    diagnosis = _diagnosis(target, launch, _hosts(launch, target.hosts), force_busy, log)
    click.echo(diagnosis.to_json() if as_json else "\n".join(_lines(diagnosis)))
    return EXIT_CODES[diagnosis.conclusion()]


def _text(file: str) -> str:
    from gpuops.errors import InputError

    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: the hostfile cannot be read: {error}") from error


def _hosts(launch: LaunchCommand, chosen: list[Host]) -> list[Host]:
    """The hosts that the command names, in its order; all that are chosen if it names none."""
    by_name = {alias: host for host in chosen for alias in (host.address, host.name)}
    return [by_name[name] for name in launch.hosts if name in by_name] if launch.hosts else chosen


def _diagnosis(
    target: Target, launch: LaunchCommand, hosts: list[Host], force_busy: tuple[str, ...], log: StepLog
) -> Diagnosis:
    from gpuops.cli._health import expected_of
    from gpuops.cli._life import scheduler_of
    from gpuops.cli._measuring import Rounds, check_force_busy, context_of, pool_of
    from gpuops.collective.preflight import causes
    from gpuops.collective.preflight.diagnosis import Preflight
    from gpuops.collective.preflight.single_round import all_reduce
    from gpuops.collective.request import MeasureRequest

    check_force_busy(MeasureRequest(force_busy=force_busy), hosts)
    names = {name for host in target.hosts for name in (host.name, host.address)}
    log.add("hosts", causes.hosts(launch, names, len(hosts)), f"{len(hosts)} of the inventory")
    if not hosts:
        return log.diagnosis(launch, ())
    with scheduler_of(target) as scheduler, pool_of(target, hosts) as pool, Rounds() as rounds:
        return Preflight(
            launch,
            pool,
            context_of(target, rounds, scheduler).monitor(pool, expected_of(hosts, {}), force_busy),
            lambda pool: all_reduce(pool, launch.environment, tell),
            scheduler.slurm if launch.launcher == "srun" else None,
            rounds.show,
            log,
        ).run()


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    """The verdict of each step, then every cause with the line to change, the first to fix first."""
    from gpuops.report.page import Page, clean, fold

    page = Page.of(sys.stdout)
    title = f"preflight   {diagnosis.command.launcher} on {fold(diagnosis.hosts)}"
    yield from page.edges(title, f"{diagnosis.seconds:.1f} s")
    yield ""
    for step in diagnosis.steps:
        word = {"ok": "ok", "fail": "FAIL", "skipped": "skipped"}[step.state]
        yield from page.labelled(f"  {step.name:<12} {word}", clean(step.detail), 24)
    for cause in diagnosis.causes:
        yield ""
        yield from page.edges(f"{fold(cause.nodes) if cause.nodes else 'the command'}", cause.test)
        yield from page.labelled("  why", clean(cause.why), 10)
        yield from page.labelled("  change", clean(cause.fix), 10)
    yield ""
    if diagnosis.causes:
        yield from page.labelled("change this first", clean(diagnosis.causes[0].fix), 19)
    elif not diagnosis.interrupted:
        yield "nothing is in the way"
    if diagnosis.interrupted:
        yield "interrupted before all steps were tried; this is what is known"
