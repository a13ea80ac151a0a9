"""``gpuops preflight -- LAUNCH COMMAND``: why can't this job start, and which line to change."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import Target, fitting_fanout, target_options, tell, this_machine

if TYPE_CHECKING:
    from gpuops.collective.launch_command import LaunchCommand
    from gpuops.collective.pool import Pool
    from gpuops.collective.preflight import Report
    from gpuops.collective.slurm import Slurm
    from gpuops.collective.watch import Watch
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
    from gpuops.collective.launch_command import read_command

    began = time.monotonic()
    launch = read_command(words, _text, os.environ)
    hosts = _hosts(launch, target.hosts)
    report = _look(target, launch, hosts, _named(force_busy, hosts))
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


def _named(text: str, hosts: list[Host]) -> frozenset[str]:
    """Nodes that are named one by one; a pattern would take more than a person thought of."""
    from gpuops.errors import InputError

    names = frozenset(filter(None, text.split(",")))
    unknown = names - {host.name for host in hosts}
    if unknown:
        raise InputError(f"--force-busy names nodes one by one, and the job has no {', '.join(sorted(unknown))}")
    return names


def _look(target: Target, launch: LaunchCommand, hosts: list[Host], forced: frozenset[str]) -> Report:
    from gpuops.collective import causes
    from gpuops.collective.pool import Pool
    from gpuops.collective.preflight import Preflight, Report
    from gpuops.collective.single_round import all_reduce
    from gpuops.collective.slurm import Slurm
    from gpuops.transport.local import open_local
    from gpuops.transport.reach import Reach

    report = Report()
    named = {name for host in target.hosts for name in (host.name, host.address)}
    report.add("hosts", causes.hosts(launch, named, len(hosts)), f"{len(hosts)} of the inventory")
    if not hosts:
        return report
    slurm = Slurm(open_local(this_machine()), os.environ.get("SLURM_JOB_ID", ""))
    pool = Pool(hosts, Reach(target.connect_seconds), fitting_fanout(target.fanout or target.project.fanout))
    try:
        with Told() as told:
            return Preflight(
                launch,
                pool,
                _watch(target, pool, slurm, forced),
                lambda left: all_reduce(left, launch.environment, tell),
                slurm if launch.launcher == "srun" else None,
                told.step,
                report,
            ).run()
    finally:
        pool.close()
        slurm.machine.close()


def _watch(target: Target, pool: Pool, slurm: Slurm, forced: frozenset[str]) -> Watch:
    from gpuops import profile
    from gpuops.collective import kubernetes
    from gpuops.collective.watch import Watch

    profiles = {known.name: known for known in profile.known()}
    expected = {
        name: profiles.get(host.profile or "", profile.NO_PROFILE).expecting(host.expect, name)
        for name, host in pool.hosts.items()
    }
    asked: dict[str, Any] = {
        "slurm": slurm.allocations,
        "kubernetes": functools.partial(kubernetes.allocations, slurm.machine),
    }
    allocations = asked.get(target.project.scheduler, lambda _hosts: {})
    return Watch(pool, expected, forced, os.environ.get("SLURM_JOB_ID", ""), allocations=allocations)


class Told:
    """What is being tried, on a terminal's stderr."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def __enter__(self) -> Told:  # noqa: PYI034 - Self came with Python 3.11
        return self

    def step(self, name: str) -> None:
        """One more step begins."""
        if self._shown:
            click.echo(f"\r\x1b[K  {name}", nl=False, err=True)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def _lines(launch: LaunchCommand, hosts: list[Host], report: Report, seconds: float) -> Iterator[str]:
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
