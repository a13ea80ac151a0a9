"""``gpuops provision``: bring nodes to what a playbook says, or show what that would take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuops import __version__
from gpuops.cli._options import Target, fitting_fanout, target_options, tell, this_machine

if TYPE_CHECKING:
    from gpuops.inventory import Host
    from gpuops.playbook.play import Playbook
    from gpuops.playbook.provisioning import Order, Provisioning, Selection
    from gpuops.playbook.result import Result
    from gpuops.playbook.running import Assignment, Record
    from gpuops.playbook.task import Library


@click.command()
@click.argument("playbook")
@target_options
@click.option("--check", is_flag=True, help="Show what would be changed; change nothing.")
@click.option("--diff", is_flag=True, help="Show the difference of every file and list of packages.")
@click.option("--tags", metavar="TAG,…", default="", help="Only steps with one of these tags.")
@click.option("--skip-tags", metavar="TAG,…", default="", help="No steps with one of these tags.")
@click.option("--start-at", metavar="STEP", default="", help="Begin with the step of this name or id.")
@click.option("--resume", metavar="RUN", default="", help="Go on with a run that broke off.")
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
    force: bool,
    break_lock: bool,
    list_tasks: bool,
    list_hosts: bool,
) -> int:
    """Bring nodes to what PLAYBOOK says: a file, or the name of one in playbooks/ or built in.

    Every step looks first and changes only what differs, then looks again whether it held. Before each change a line
    is written to the run's journal, so that a run that was killed goes on with --resume. A second run finds everything
    well and changes nothing.

    \b
    Exit codes: 0 all is as it shall be, 1 a step failed (with --check: something would be changed), 2 wrong input,
                3 a node unreachable or a person needed, 4 somebody else works on a node, 130 interrupted.
    """  # noqa: D301 - click needs the character itself
    from gpuops.cli import _steps
    from gpuops.playbook.loading import load_playbook
    from gpuops.playbook.provisioning import Selection, assign
    from gpuops.playbook.task import Library

    library = Library()
    book = load_playbook(playbook, library)
    if list_tasks:
        return _list(_steps.list_steps(book))
    selection = Selection(_words(tags), _words(skip_tags), start_at)
    assignments = assign(book, chooser(target), selection)
    if list_hosts:
        return _list(_steps.list_hosts(assignments))
    order = order_of(target, check=check, resume=resume, force=force, break_lock=break_lock)
    record, work = carry_out(target, order, book, assignments, selection, library)
    tell_record(record, work, playbook, check=check, diff=diff)
    return record.exit_code(check=check)


def _list(lines: Iterable[str]) -> int:
    for line in lines:
        click.echo(line)
    return 0


def order_of(target: Target, **wish: Any) -> Order:
    """How the run is carried out; its journal lies beside the project's store."""
    from gpuops.playbook.provisioning import Order

    fanout = target.fanout or target.project.fanout
    most_open = fitting_fanout(max(fanout, len(target.hosts)))
    runs = Path(target.project.store).parent / "runs"
    return Order(__version__, runs, fanout=min(fanout, most_open), most_open=most_open, **wish)


def carry_out(
    target: Target, order: Order, book: Playbook, assignments: list[Assignment], selection: Selection, library: Library
) -> tuple[Record, Provisioning]:
    """Reach the nodes and do it."""
    from gpuops.cli._occupants import Occupants
    from gpuops.playbook.provisioning import Provisioning
    from gpuops.transport.local import open_local
    from gpuops.transport.reach import Reach

    reach = Reach(target.connect_seconds)
    busy = Occupants(target.project.scheduler, open_local(this_machine()), target.hosts)
    work = Provisioning(book, assignments, selection, order, library=library, open_transport=reach, busy=busy)
    record = _run(work, check=order.check)
    for sentence in reach.said:
        tell(sentence)
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


def _run(work: Provisioning, *, check: bool) -> Record:
    """Do it, with the present step on a terminal's stderr."""
    if not check:
        tell(f"run {work.run_id}")
    if not sys.stderr.isatty():
        return work.run(say=tell)

    def watch(result: Result) -> None:
        from gpuops.report.page import clean

        click.echo(f"\r\x1b[K  {clean(result.name)[:50]}   {result.node}: {result.status}", nl=False, err=True)

    try:
        return work.run(watch, tell)
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)


def tell_record(
    record: Record, work: Provisioning, playbook: str, *, check: bool, diff: bool, advise: bool = True
) -> None:
    """Say what became of every node, and, to ``advise``, how to go on."""
    from gpuops.cli._steps import draw, summary
    from gpuops.report.page import Page, fold

    for error in record.locked:
        tell(str(error))
    if record.locked:
        return
    click.echo(f"{playbook}   {'check only: nothing is changed' if check else f'run {work.run_id}'}")
    page = Page.of(sys.stdout)
    for line in draw(record, page, diff=diff):
        click.echo(line)
    click.echo(f"\n{summary(record)}")
    if check and advise:
        click.echo("apply: without --check")
    if record.stopped:
        click.echo(f"stopped: {record.stopped}")
    untouched = work.untouched(record)
    if untouched:
        click.echo(f"not begun: {fold(untouched)}")
    for node, names in record.waiting.items() if not check else ():
        if names:
            click.echo(f"{node} still waits for: {', '.join(names)}; the next run of this playbook does it")
    if advise and not check and record.exit_code(check=False):
        click.echo(f"go on: gpuops provision {playbook} --resume {work.run_id}")
