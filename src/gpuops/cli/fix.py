"""``gpuops fix``: the remedy of a check's finding, shown first and then done."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuops.cli._options import Target, step_target_options

if TYPE_CHECKING:
    from gpuops.judging import Check

_FOLDER = "playbooks/fixes"


@click.command()
@click.argument("check")
@click.argument("node")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--force", is_flag=True, help="Also on a node that takes jobs.")
@step_target_options
def command(target: Target, check: str, node: str, *, yes: bool, force: bool) -> int:
    """Do what mends the finding of CHECK on NODE: shown first, done when it is confirmed, and judged again.

    The remedy is the playbook fixes/CHECK.yml, the project's own or a built-in one. It is done on a drained node on
    which nobody computes; a GPU is reset with its clients stopped, all GPUs of a baseboard together where they need it.

    \b
    Exit codes: 0 the check passes now, 1 it does not, or was not confirmed,
    2 wrong input, 3 a node unreachable or a person needed,
    4 somebody else works on it, 130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.cli._life import with_names
    from gpuops.cli._play import play
    from gpuops.cli.provision import tell_record

    judge, path = _remedy(check)
    target = with_names(target, [node])
    record, work = play(target, path, check=True)
    tell_record(record, work, f"fixes/{check}", check=True, diff=True, advise=False)
    code = record.exit_code(check=True)
    if code == 0 or not any(result.status in ("would_change", "later") for result in record.results):
        return code or _judged(target, judge)
    if not yes and not sys.stdin.isatty():
        click.echo(f"to do it: gpuops fix {check} {node} --yes")
        return 1
    _check_drained(target, force=force)
    if not yes and not click.confirm("do it?"):
        return 1
    record, work = play(target, path, check=False, force=force)
    tell_record(record, work, f"fixes/{check}", check=False, diff=False, advise=False)
    return record.exit_code(check=False) or _judged(target, judge)


def _remedy(name: str) -> tuple[Check, str]:
    """The check and the file of its playbook; `ContentError` where nothing can be done from here."""
    from gpuops.content import listing
    from gpuops.errors import ContentError, did_you_mean
    from gpuops.judging import discover

    checks, fixes = discover(), listing(_FOLDER, ".yml")
    if name not in checks:
        raise ContentError(f'no check called "{name}"{did_you_mean(name, checks) or "; gpuops checks list"}')
    if name not in fixes:
        raise ContentError(f"no playbook mends {name} (known: {', '.join(fixes)}); it says: {checks[name].fix}")
    return checks[name], str(fixes[name].path)


def _check_drained(target: Target, *, force: bool) -> None:
    """Refuse a node that takes jobs."""
    from gpuops.cli._life import open_store, scheduler_of
    from gpuops.errors import NodeError
    from gpuops.lifecycle.states import state_of

    with scheduler_of(target) as scheduler, open_store(target) as store:
        busy = scheduler.control.still_busy(target.hosts)
        admitted = [host.name for host in target.hosts if state_of(store.latest(host.name)) == "admitted"]
    for host in () if force else target.hosts:
        why = busy.get(host.name) or ("it is admitted" if host.name in admitted else "")
        if why:
            raise NodeError(host.name, f"{why}; first: gpuops drain {host.name} --reason WHY --wait 3600")


def _judged(target: Target, check: Check) -> int:
    """What the check says of the nodes now."""
    from gpuops import assessment, facts, judging
    from gpuops.cli._health import profiles_of
    from gpuops.cli._outcomes import exit_code

    probes = assessment.probes_for([check])
    outcomes = target.each(lambda way, host: facts.gather(host.name, way.batch, probes), "judging again")
    known = {outcome.node: outcome.value for outcome in outcomes if outcome.value is not None}
    profiles = profiles_of(target.hosts, known)
    verdicts = [judging.judge(check, told, profiles[name]) for name, told in known.items()]
    for verdict in verdicts:
        what = "; ".join(finding.message for finding in verdict.findings) or verdict.why
        click.echo(f"{verdict.node}   {check.name}: {verdict.status}{f'   {what}' if what else ''}")
    bad = {verdict.status for verdict in verdicts} - {"pass", "warn", "skipped"}
    return exit_code(outcomes, found=1 if "fail" in bad else 3 if bad else 0)
