"""Provisioning of hosts to the state that a playbook describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuops.cancellation import CancelToken
from gpuops.errors import Problems
from gpuops.events import HostActivity, StepDone
from gpuops.inventory import Host
from gpuops.operations.occupants import Occupants
from gpuops.playbook import journal
from gpuops.playbook.loading import load_playbook
from gpuops.playbook.play import Playbook
from gpuops.playbook.provisioning import PlaybookRun, RunOptions, StepSelection, assign
from gpuops.playbook.record import Record
from gpuops.playbook.result import StepResult
from gpuops.playbook.running import BoundPlay
from gpuops.playbook.task import TaskRegistry
from gpuops.requests import ProvisionRequest
from gpuops.version import __version__
from gpuops.workspace import Workspace


@dataclass(frozen=True)
class Plan:
    """Playbook with its selected hosts and steps, checked before any host is asked."""

    book: Playbook
    plays: list[BoundPlay]
    selection: StepSelection
    tasks: TaskRegistry

    @property
    def tags(self) -> set[str]:
        """The tags of all steps."""
        return {tag for play in self.book.plays for step in play.every_step for tag in step.tags}


def provision(work: Workspace, request: ProvisionRequest) -> Record:
    """Run a playbook, or in check mode find out what it would change."""
    return carry_out(work, plan(work, request), request)


def plan(work: Workspace, request: ProvisionRequest) -> Plan:
    """Select the steps and hosts; raise `InputError` if the request is invalid."""
    tasks = work.catalogue.tasks()
    selection = StepSelection(tuple(request.tags), tuple(request.skip_tags), request.start_at)
    book, problems = request.playbook, Problems()
    if not isinstance(book, Playbook):
        book = load_playbook(book, tasks, work.catalogue.project, problems)
    chooser = _failed_only(work, request.retry) if request.retry else hosts_of(work)
    plays = assign(book, chooser, selection, work.environment, request.extra_vars or {}, problems)
    return Plan(book, plays, selection, tasks)


def hosts_of(work: Workspace) -> Callable[[str], Sequence[Host]]:
    """Return a function that selects hosts by a play's pattern; without an inventory, ``all`` is this machine."""
    chosen = {host.name for host in work.hosts}
    return lambda pattern: work.nodes.usable(h for h in work.whole.only(pattern).hosts if h.name in chosen)


def _failed_only(work: Workspace, run: str) -> Callable[[str], Sequence[Host]]:
    """Return a function that selects, by a play's pattern, hosts that failed in ``run``."""
    choose, failed = hosts_of(work), journal.failed(journal.find(work.project.runs_path, run))
    return lambda pattern: [host for host in choose(pattern) if host.name in failed]


def carry_out(
    work: Workspace,
    chosen: Plan,
    request: ProvisionRequest,
    *,
    cancel: CancelToken | None = None,
    announces: bool = True,
) -> Record:
    """Connect to the hosts and carry out the plan.

    ``cancel`` lets running changes complete, unlike the token of the call. ``announces`` tells the name of the run.
    """
    nodes, options = work.nodes, _options(work, request, announces=announces)

    def on_result(result: StepResult) -> None:
        nodes.emit(StepDone(nodes.operation, result.node, result.name, result.status))

    with nodes.connections.group(nodes.cancel) as group, work.scheduler() as scheduler:
        run = PlaybookRun(
            chosen.book,
            chosen.plays,
            chosen.selection,
            options,
            library=chosen.tasks,
            open_transport=group.open,
            busy=Occupants(scheduler.allocations, work.hosts),
            cancel=cancel,
        )
        state = run.run(
            on_result,
            work.note,
            lambda node: lambda *activity: nodes.emit(HostActivity(nodes.operation, node, *activity)),
        )
    for notice in nodes.connections.notices():
        work.note(notice)
    return run.record(state)


def _options(work: Workspace, request: ProvisionRequest, *, announces: bool) -> RunOptions:
    most_open = work.nodes.fitting(max(work.nodes.forks, len(work.hosts)))
    return RunOptions(
        __version__,
        work.project.runs_path,
        work.operator,
        check=request.check,
        resume=request.resume,
        force=request.force,
        break_lock=request.break_lock,
        fanout=min(work.nodes.forks, most_open),
        most_open=most_open,
        environment=work.environment,
        extra_vars=request.extra_vars or {},
        announces=announces,
    )
