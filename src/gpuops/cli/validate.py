"""``gpuops validate``: ask every node, judge what it says, name each fault with its remedy."""

from __future__ import annotations

import datetime as dt
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._measuring import names_in
from gpuops.cli._options import Target, saved_host, target_options
from gpuops.version import __version__

if TYPE_CHECKING:
    from gpuops.collective.request import MeasureRequest
    from gpuops.errors import GpuopsError
    from gpuops.facts import Facts
    from gpuops.inventory import Host
    from gpuops.judging import Check
    from gpuops.profile import Profile
    from gpuops.results.health import Report


@dataclass(frozen=True)
class Gathered:
    """What the nodes said, or why they did not, in the order of the inventory."""

    facts: dict[str, Facts]
    errors: dict[str, GpuopsError]
    hosts: dict[str, Host]
    interrupted: bool = False


@click.command()
@target_options
@click.option(
    "--level",
    type=click.Choice(["quick", "standard", "burnin"]),
    default="quick",
    show_default=True,
    help="quick: seconds, disturbs nobody; the others also measure.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "nccl", "nccl-tests", "tcp"]),
    default="auto",
    show_default=True,
    help="What runs the all-reduce of the higher levels; see gpuops allreduce.",
)
@click.option(
    "--force-busy",
    callback=names_in,
    metavar="HOSTS",
    help="Measure these hosts though somebody uses them; name each.",
)
@click.option(
    "--burn-in", default="30m", show_default=True, metavar="TIME", help="How long --level burnin loads a node."
)
@click.option("--only", multiple=True, metavar="NAME", help="Only this check or tag; may be given again.")
@click.option("--skip", multiple=True, metavar="NAME", help="Not this check or tag; may be given again.")
@click.option("--fail-on", type=click.Choice(["fail", "warn", "never"]), help="Exit 1 from here on (fail).")
@click.option("--format", "form", metavar="FORMAT", default="table", show_default=True, help="table, json or junit.")
@click.option(
    "-o",
    "--output",
    "outputs",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write a report there, in --format or the one that its suffix names (.json, .xml, .txt); may be given again.",
)
@click.option("--from", "folder", type=click.Path(path_type=Path), metavar="DIR", help="Judge saved facts; no network.")
@click.option("--save", type=click.Path(path_type=Path), metavar="DIR", help="Keep the nodes' answers, for --from.")
def command(  # noqa: PLR0913, PLR0917 - one argument an option
    target: Target,
    level: Any,
    engine: str,
    force_busy: tuple[str, ...],
    burn_in: str,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    fail_on: Any,
    form: str,
    outputs: tuple[Path, ...],
    folder: Path | None,
    save: Path | None,
) -> int:
    """Judge every node: the verdict first, then each fault with its evidence and its remedy.

    Without an inventory it judges this machine. Nothing is installed on the nodes and no job is disturbed: what the
    higher levels measure, they measure on nodes that are proved idle.

    \b
    Exit codes: 0 all well, 1 findings at or above --fail-on, 2 wrong input,
                3 a node unreachable or not enough known of it, 130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops import judging, profile
    from gpuops.cli._burning import seconds_of
    from gpuops.collective.request import MeasureRequest
    from gpuops.reasons import EXIT_CODES

    _check_outputs(form, outputs)
    request, burn_seconds = MeasureRequest(engine, force_busy=force_busy), seconds_of(burn_in)
    known = judging.discover()
    checks = judging.choose(known, level, only, skip)
    profiles = profile.known()
    began, started_at = time.monotonic(), dt.datetime.now(dt.timezone.utc)
    request = replace(request, keep_answers=save is not None)
    gathered = _load(folder, checks, target) if folder else _look(target, checks, request, burn_seconds)
    if save:
        from gpuops.cli.facts import write_all

        write_all(list(gathered.facts.values()), save)
    run = _run(target, folder, level, started_at, began)
    report = _judge(run, gathered, checks, profiles, _not_run(known, level, only))
    _publish(report, form, outputs)
    threshold: Any = fail_on or target.project.fail_on
    return EXIT_CODES[report.conclusion(threshold)]


def _check_outputs(form: str, outputs: tuple[Path, ...]) -> None:
    """Refuse a wrong format or folder before any node is asked."""
    from gpuops.errors import InputError, OutputError, did_you_mean
    from gpuops.report import format_for, format_names

    if form not in format_names():
        raise InputError(f'no report format called "{form}"{did_you_mean(form, format_names())}')
    for path in outputs:
        if len(outputs) > 1 or form == "table":
            format_for(path)
        if not path.parent.is_dir():
            raise OutputError(f"{path}: cannot be written: there is no folder {path.parent}; create it first")


def _look(target: Target, checks: list[Check], request: MeasureRequest, burn_seconds: float) -> Gathered:
    """What the nodes say, and what they show under the load that ``checks`` need."""
    from gpuops.cli._measuring import check_force_busy
    from gpuops.judging import probes_of

    heavy = {probe.name for probe in probes_of(checks) if probe.cost == "heavy"}
    if heavy:
        check_force_busy(request, target.hosts)
    gathered = _ask(target, checks, keep=request.keep_answers)
    if "all_reduce" in heavy:
        gathered = _measure(gathered, target, request)
    return _burn_in(gathered, target, request, burn_seconds) if heavy - {"all_reduce"} else gathered


def _ask(target: Target, checks: list[Check], *, keep: bool) -> Gathered:
    from gpuops import assessment, facts
    from gpuops.errors import CancelledError

    hosts = {host.name: host for host in target.judged_hosts}
    probes = [probe for probe in assessment.probes_for(checks) if probe.cost != "heavy"]
    outcomes = target.each(
        lambda transport, host: facts.gather(host.name, transport.batch, probes, keep_answers=keep), "reaching nodes"
    )
    return Gathered(
        {o.node: o.value for o in outcomes if o.value is not None},
        {o.node: o.error for o in outcomes if o.error is not None},
        hosts,
        any(isinstance(o.error, CancelledError) for o in outcomes),
    )


def _measure(gathered: Gathered, target: Target, request: MeasureRequest) -> Gathered:
    """The same with what an all-reduce shows of each node, or why it took no part."""
    from gpuops.cli._measuring import measure

    if gathered.interrupted:
        return gathered
    measurement = measure(target, gathered.facts, request)
    return replace(gathered, facts=dict(measurement.facts), interrupted=measurement.interrupted)


def _burn_in(gathered: Gathered, target: Target, request: MeasureRequest, seconds: float) -> Gathered:
    """The same with what a load that lasts shows of each node, or why it bore none."""
    from gpuops.cli._burning import burn

    if gathered.interrupted:
        return gathered
    result = burn(target, gathered.facts, request, seconds)
    return replace(gathered, facts=dict(result.facts), interrupted=result.interrupted)


def _load(folder: Path, checks: list[Check], target: Target) -> Gathered:
    """Saved facts; where an inventory is given too, its hosts' profiles and expectations count."""
    from gpuops import assessment, facts

    saved = {f.node: f for f in facts.load_folder(folder, assessment.probes_for(checks))}
    known = {host.name: host for host in target.judged_hosts} if target.inventory else {}
    hosts = {name: known.get(name) or saved_host(name, folder) for name in saved}
    return Gathered(saved, {}, hosts)


def _judge(
    run: Any,
    gathered: Gathered,
    checks: list[Check],
    profiles: list[Profile],
    not_run: dict[Any, tuple[str, ...]],
) -> Report:
    from gpuops import assessment
    from gpuops.reasons import excluded_by
    from gpuops.results.health import build

    chosen = {n: assessment.profile_of(gathered.hosts[n], f, profiles) for n, f in gathered.facts.items()}
    verdicts = assessment.assess(checks, gathered.facts, chosen)
    hosts = {name: chosen.get(name) or excluded_by(name, gathered.errors[name]) for name in gathered.hosts}
    report = build(run, hosts, verdicts)
    return replace(report, not_run=not_run, facts=gathered.facts, interrupted=gathered.interrupted)


def _run(target: Target, folder: Path | None, level: Any, started_at: dt.datetime, began: float) -> Any:
    from gpuops.results.health import Run

    name = target.name if folder is None else f"{folder}/"
    return Run(__version__, started_at, name, level, time.monotonic() - began, " ".join(["gpuops", *sys.argv[1:]]))


def _not_run(known: dict[str, Check], level: Any, only: tuple[str, ...]) -> dict[Any, tuple[str, ...]]:
    """What a higher level would run, by level: the quick one measures nothing between GPUs."""
    from gpuops.judging import LEVELS

    left: dict[Any, tuple[str, ...]] = {}
    for name in () if only else LEVELS:
        higher = LEVELS.index(name) > LEVELS.index(level)
        checks = tuple(c.name for c in known.values() if higher and c.level == name)
        if checks:
            left[name] = checks
    return left


def _publish(report: Report, form: str, outputs: tuple[Path, ...]) -> None:
    """Every named file, all rendered before the first is written; the table on stdout beside them."""
    from gpuops.report import format_for, render
    from gpuops.report.formats import table
    from gpuops.report.output import write
    from gpuops.report.page import Page

    texts = [render(form if form != "table" and len(outputs) == 1 else format_for(p), report) for p in outputs]
    for path, text in zip(outputs, texts, strict=True):
        write(text, path)
    if form == "table":
        click.echo(table.render(report, Page.of(sys.stdout)), nl=False)
    elif not outputs:
        click.echo(render(form, report), nl=False)
