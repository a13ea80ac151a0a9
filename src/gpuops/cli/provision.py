"""``gpuops provision``: bring nodes to what a playbook says, or show what that would take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops.cli._options import StatusLine, Target, fitting_fanout, step_target_options, tell
from gpuops.version import __version__

if TYPE_CHECKING:
    from gpuops.errors import LockedError
    from gpuops.inventory import Host
    from gpuops.playbook.play import Playbook
    from gpuops.playbook.provisioning import PlaybookRun, RunOptions, StepSelection
    from gpuops.playbook.result import StepResult
    from gpuops.playbook.running import BoundPlay, RunState
    from gpuops.playbook.task import TaskRegistry

_LOCKS_TOLD = 3


@click.command()
@click.argument("playbook")
@step_target_options
@click.option("--check", is_flag=True, help="Show what would be changed; change nothing.")
@click.option("--diff", is_flag=True, help="Show the difference of every file and list of packages.")
@click.option("--tags", metavar="TAG,…", default="", help="Only steps with one of these tags.")
@click.option("--skip-tags", metavar="TAG,…", default="", help="No steps with one of these tags.")
@click.option("--start-at", metavar="STEP", default="", help="Begin with the step of this name or id.")
@click.option("--resume", metavar="RUN", default="", help="Go on with a run that broke off.")
@click.option("--retry", metavar="RUN", default="", help="Only the nodes that failed in this run, in a new one.")
@click.option("--force", is_flag=True, help="Change nodes that run jobs, too.")
@click.option("--break-lock", is_flag=True, help="Take the lock of a run that is dead.")
@click.option("--list-tasks", is_flag=True, help="List plays, steps and handlers; ask no node.")
@click.option("--list-hosts", is_flag=True, help="List the nodes of each play, batch by batch; ask none.")
def command(  # noqa: PLR0913 - one argument an option
    target: Target,
    playbook: str,
    *,
    check: bool,
    diff: bool,
    tags: str,
    skip_tags: str,
    start_at: str,
    resume: str,
    retry: str,
    force: bool,
    break_lock: bool,
    list_tasks: bool,
    list_hosts: bool,
) -> int:
    """Bring nodes to what PLAYBOOK says: a file, or the name of one in playbooks/ or built in.

    Every step looks first and changes only what differs, then looks again whether it held. Before each change a line
    is written to the run's journal, so that a run that was killed goes on with --resume. A second run finds everything
    well and changes nothing. Without an inventory this machine is meant, and at a terminal you are asked whether it is.

    \b
    Exit codes: 0 all is as it shall be,
    1 a step failed (with --check: something would be changed), 2 wrong input,
    3 a node unreachable or a person needed, 4 somebody else works on a node,
    130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.playbook.loading import load_playbook
    from gpuops.playbook.provisioning import StepSelection, assign
    from gpuops.playbook.task import TaskRegistry
    from gpuops.report import playbook_plan

    library = TaskRegistry()
    book = load_playbook(playbook, library)
    if list_tasks:
        return _list(playbook_plan.list_steps(book))
    selection = StepSelection(_words(tags), _words(skip_tags), start_at)
    assignments = assign(book, _failed_only(target, retry) if retry else chooser(target), selection)
    if list_hosts:
        return _list(playbook_plan.list_hosts(assignments))
    if not check and not _is_meant(target):
        return 1
    order = order_of(target, check=check, resume=resume, force=force, break_lock=break_lock)
    record, work = carry_out(target, order, book, assignments, selection, library)
    tell_record(record, work, playbook, check=check, diff=diff)
    return record.exit_code(check=check)


def _is_meant(target: Target) -> bool:
    """Whether this machine is to be changed, where a person may only have forgotten to name an inventory."""
    if target.name != "this machine" or not sys.stdin.isatty():
        return True
    return click.confirm(f"no inventory is named: change this machine ({target.hosts[0].name})?")


def _list(lines: Iterable[str]) -> int:
    for line in lines:
        click.echo(line)
    return 0


def order_of(target: Target, **wish: Any) -> RunOptions:
    """How the run is carried out; its journal lies beside the project's store."""
    from gpuops.playbook.provisioning import RunOptions

    fanout = target.fanout or target.project.fanout
    most_open = fitting_fanout(max(fanout, len(target.hosts)))
    return RunOptions(__version__, _runs(target), fanout=min(fanout, most_open), most_open=most_open, **wish)


def _runs(target: Target) -> Path:
    return Path(target.project.store).parent / "runs"


def _failed_only(target: Target, run: str) -> Callable[[str], Sequence[Host]]:
    """What a play's pattern selects of the nodes that failed in ``run``."""
    from gpuops.playbook import journal

    choose, failed = chooser(target), journal.failed(journal.find(_runs(target), run))
    return lambda pattern: [host for host in choose(pattern) if host.name in failed]


def carry_out(
    target: Target,
    order: RunOptions,
    book: Playbook,
    assignments: list[BoundPlay],
    selection: StepSelection,
    library: TaskRegistry,
) -> tuple[RunState, PlaybookRun]:
    """Reach the nodes and do it."""
    from gpuops.cli._life import scheduler_of
    from gpuops.cli._occupants import Occupants
    from gpuops.playbook.provisioning import PlaybookRun

    with scheduler_of(target) as scheduler, target.connections.group() as group:
        busy = Occupants(scheduler.allocations, target.hosts)
        work = PlaybookRun(book, assignments, selection, order, library=library, open_transport=group.open, busy=busy)
        record = _run(work)
    target.tell_notices()
    return record, work


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def chooser(target: Target) -> Callable[[str], Sequence[Host]]:
    """What a play's pattern selects of the chosen hosts; without an inventory, ``all`` is this machine."""
    from gpuops.errors import PatternError
    from gpuops.inventory import Inventory

    chosen = {host.name: host for host in target.hosts}
    if target.name == "this machine":

        def here(pattern: str) -> Sequence[Host]:
            if pattern not in ("all", "localhost"):
                raise PatternError(f'"{pattern}" needs an inventory: -i FILE, or `inventory:` in gpuops.yml')
            return list(chosen.values())

        return here
    inventory = Inventory.open(target.name)
    return lambda pattern: [chosen[host.name] for host in inventory.select(pattern) if host.name in chosen]


def _run(work: PlaybookRun) -> RunState:
    """Do it, with the latest result on a terminal's stderr."""
    with StatusLine() as line:

        def watch(result: StepResult) -> None:
            line.show(f"{result.node}: {result.status.replace('_', ' ')}   {result.name}")

        def say(sentence: str) -> None:
            line.show("")
            tell(sentence)

        return work.run(watch, say)


def tell_locked(locked: Sequence[LockedError]) -> None:
    """Who holds the first nodes, and how many more there are."""
    for error in locked[:_LOCKS_TOLD]:
        tell(str(error))
    if len(locked) > _LOCKS_TOLD:
        tell(f"and {len(locked) - _LOCKS_TOLD} more nodes are locked")


def tell_record(
    record: RunState, work: PlaybookRun, playbook: str, *, check: bool, diff: bool, advise: bool = True
) -> None:
    """Say what became of every node, and, to ``advise``, how to go on."""
    from gpuops.report.page import Page
    from gpuops.report.playbook import draw, ending, summary

    if record.locked:
        tell_locked(record.locked)
        return
    click.echo(f"{playbook}   {'check only: nothing is changed' if check else f'run {work.run_id}'}")
    page = Page.of(sys.stdout)
    for line in draw(record, page, diff=diff):
        click.echo(line)
    click.echo(f"\n{summary(record)}")
    if check and advise and any(result.status in ("would_change", "later") for result in record.results):
        click.echo("apply: without --check")
    for line in ending(record, work.untouched(record), page) if not check else ():
        click.echo(line)
    if advise and not check and record.exit_code(check=False):
        click.echo(f"go on: the same command with --resume {work.run_id}")
