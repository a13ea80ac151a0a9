"""Running: plays over nodes, batch by batch and step by step; who fails goes no further, and too many stop the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuops.errors import CancelledError, LockedError, NodeError
from gpuops.fleet import FANOUT, Outcome, each
from gpuops.inventory import Host
from gpuops.playbook.applying import carry_out, status_of
from gpuops.playbook.binding import Bound
from gpuops.playbook.locking import Owner, release, take
from gpuops.playbook.node_session import NodeSession
from gpuops.playbook.play import Flush, Play, Step, batches
from gpuops.playbook.result import StepResult

_WEEK_SECONDS = 7 * 86400.0
_RELEASE_SECONDS = 20.0


@dataclass(frozen=True)
class BoundPlay:
    """A play for its nodes: the chosen ``steps``, bound."""

    play: Play
    hosts: tuple[Host, ...]
    steps: tuple[Step | Flush, ...]
    bound: Bound


@dataclass
class RunState:
    """What became of a run: every result in order, why it ``stopped`` early, and the handlers that nodes wait for."""

    results: list[StepResult] = field(default_factory=list)
    stopped: str = ""
    interrupted: bool = False
    waiting: dict[str, list[str]] = field(default_factory=dict)
    locked: list[LockedError] = field(default_factory=list)
    _out: set[str] = field(default_factory=set)

    def out(self, node: str) -> bool:
        """The node goes no further."""
        return node in self._out

    def add(self, result: StepResult) -> None:
        """One more result."""
        self.results.append(result)
        self.interrupted |= result.status == "interrupted"
        if result.out:
            self._out.add(result.node)

    def exit_code(self, *, check: bool) -> int:
        """0 ok or changed, 1 failed (or, in check mode, not yet as it shall be), 3 a node out of reach or a person due.

        4 where somebody else holds a node, 130 after Ctrl-C.
        """
        found = {result.status for result in self.results if not result.ignored}
        if self.interrupted:
            return CancelledError.exit_code
        if self.locked:
            return LockedError.exit_code
        if "failed" in found or (check and found & {"would_change", "later"}):
            return 1
        return NodeError.exit_code if found & {"unreachable", "needs_operator"} else 0


Watch = Callable[[StepResult], None]


class Runner:
    """Carries out assignments on ``sites`` and notes in ``record``. ``watch`` hears each result as it comes.

    At most ``fanout`` nodes work at a time; the connections of at most ``most_open`` are kept from step to step.
    """

    def __init__(
        self,
        sites: dict[str, NodeSession],
        record: RunState,
        *,
        fanout: int = FANOUT,
        most_open: int = FANOUT,
        watch: Watch = lambda _: None,
    ) -> None:
        self.record = record
        self._most_open = most_open
        self._sites = sites
        self._fanout = fanout
        self._doubts: dict[tuple[str, str], str] = {}
        self._watch = watch

    def run(self, assignments: Sequence[BoundPlay]) -> RunState:
        """Every play, until all are done or one stops; who failed in a play is not in those after it."""
        gone: set[str] = set()
        for assignment in assignments:
            hosts = [host for host in assignment.hosts if host.name not in gone]
            for batch in batches(hosts, assignment.play.serial):
                self._batch(assignment, batch)
                if self.record.stopped or self.record.interrupted:
                    return self.record
            gone = {host.name for host in assignment.hosts if self.record.out(host.name)} | gone
        return self.record

    def _batch(self, assignment: BoundPlay, batch: list[Host]) -> None:
        """The steps one after another, each on all nodes of the batch at once; then the handlers.

        Where too many failed, nodes that were changed already still come to the end, for none shall stay halfway.
        """
        for step in (*assignment.steps, Flush(assignment.play.where)):
            if isinstance(step, Flush):
                self._handlers(assignment, batch)
            else:
                self._step(assignment, step, self._left(assignment.play, batch))
            self._weigh(assignment.play, batch)
            if self.record.interrupted:
                return

    def _left(self, play: Play, batch: Sequence[Host]) -> list[Host]:
        """The nodes of the batch that go on."""
        left = [host for host in batch if not self.record.out(host.name)]
        if not self.record.stopped:
            return left
        return [] if play.any_errors_fatal else [host for host in left if self._is_halfway(play, host)]

    def _is_halfway(self, play: Play, host: Host) -> bool:
        """Whether the play has changed the node."""
        steps = {step.id for step in play.every_step}
        return any(made.step in steps for made in self._sites[host.name].made)

    def _step(self, assignment: BoundPlay, step: Step, hosts: Sequence[Host], *, handler: bool = False) -> None:
        def work(host: Host) -> StepResult:
            rebooting = handler and step.task.name != "reboot" and self._reboots_next(assignment.play, host)
            doubt = self._doubt(host, step) if handler else ""
            bound, site = assignment.bound[host.name][step.id], self._sites[host.name]
            try:
                with site.at_work:
                    return carry_out(bound, site, handler=handler, reboots_next=rebooting, doubt=doubt)
            finally:
                if len(hosts) > self._most_open:
                    site.hang_up()

        outcomes = each(
            hosts,
            work,
            fanout=self._fanout,
            total_seconds=_WEEK_SECONDS,
            watch=lambda outcome: self._watch(_result(outcome, step)),
            stop=self._stop,
        )
        for outcome in outcomes:
            self._keep(_result(outcome, step), step)
        self.record.interrupted |= outcomes.interrupted

    def _stop(self) -> None:
        """Let what runs come to its end, and begin nothing more."""
        for site in self._sites.values():
            site.stopping = True

    def _keep(self, result: StepResult, step: Step) -> None:
        self.record.add(result)
        site = self._sites[result.node]
        if result.changes:
            waiting = self.record.waiting.setdefault(result.node, [])
            waiting += [name for name in step.notify if name not in waiting]
        elif result.status == "later":
            doubt = f'due if "{step.name}" changes anything'
            self._doubts.update({(result.node, name): doubt for name in step.notify})
        if site.journal and not self.record.interrupted:
            told = {"name": step.name, "status": result.status, "why": result.why, "handler": result.handler}
            site.journal.write("step", durable=False, node=result.node, step=step.id, **told)

    def _reboots_next(self, play: Play, host: Host) -> bool:
        waiting = self.record.waiting.get(host.name, [])
        return any(h.name in waiting and h.task.name == "reboot" for h in play.handlers)

    def _waits(self, host: Host, handler: Step) -> bool:
        return handler.name in self.record.waiting.get(host.name, [])

    def _doubt(self, host: Host, handler: Step) -> str:
        """Why check mode cannot tell whether the handler will run."""
        return "" if self._waits(host, handler) else self._doubts.get((host.name, handler.name), "")

    def _handlers(self, assignment: BoundPlay, batch: Sequence[Host]) -> None:
        """Those that were notified, or in check mode may be, in the order of the play, a reboot last."""
        play = assignment.play
        for handler in sorted(play.handlers, key=lambda h: h.task.name == "reboot"):
            left = self._left(play, batch)
            hosts = [host for host in left if self._waits(host, handler) or self._doubt(host, handler)]
            self._step(assignment, handler, hosts, handler=True)
            for host in self._left(play, hosts):
                self._doubts.pop((host.name, handler.name), None)
                if self._waits(host, handler):
                    self.record.waiting[host.name].remove(handler.name)
            if self.record.interrupted:
                return

    def _weigh(self, play: Play, batch: Sequence[Host]) -> None:
        """Stop where more of the batch failed than the play allows, or all of it; looking alone risks nothing."""
        if not any(site.journal for site in self._sites.values()):
            return
        failed = sum(self.record.out(host.name) for host in batch)
        percentage = 100 * failed / len(batch)
        if failed and (play.any_errors_fatal or failed == len(batch) or percentage > play.max_fail_percentage):
            self.record.stopped = f'{failed} of {len(batch)} nodes of a batch failed in play "{play.name}"'
            if failed < len(batch):
                limit = f"max_fail_percentage is {play.max_fail_percentage:g}"
                self.record.stopped += f"; {'any_errors_fatal' if play.any_errors_fatal else limit}"


def _result(outcome: Outcome[StepResult], step: Step) -> StepResult:
    """The result, or what stands in its place; an error that is not the node's own ends the run."""
    if outcome.value is not None:
        return outcome.value
    error = outcome.error
    if isinstance(error, CancelledError):
        return StepResult(outcome.node, step.id, step.name, "interrupted", str(error))
    if isinstance(error, NodeError):
        return StepResult(outcome.node, step.id, step.name, "failed", error.what)
    raise error or AssertionError(outcome)


def lock(sites: Sequence[NodeSession], owner: Owner, *, break_dead: bool, fanout: int, most_open: int) -> RunState:
    """Lock every node; where somebody else holds one, all are left alone. The record has those that did not answer."""
    by_name = {site.name: site for site in sites}

    def work(host: Host) -> None:
        take(by_name[host.name], owner, break_dead=break_dead)
        if len(sites) > most_open:
            by_name[host.name].hang_up()

    outcomes = each([site.host for site in sites], work, fanout=fanout)
    locked = [o.error for o in outcomes if isinstance(o.error, LockedError)]
    record = RunState(locked=locked, interrupted=outcomes.interrupted)
    if record.locked or record.interrupted:
        unlock([by_name[o.node] for o in outcomes if o.error is None], owner, fanout=fanout)
    for outcome in outcomes:
        if isinstance(outcome.error, NodeError):
            status = status_of(outcome.error)
            record.add(StepResult(outcome.node, "lock", "lock", status, outcome.error.what))
    return record


def unlock(sites: Sequence[NodeSession], owner: Owner, *, fanout: int) -> None:
    """Release what is ours, and hang up; a node that does not answer now tells the next run whose its lock is."""
    by_name = {site.name: site for site in sites}

    def work(host: Host) -> None:
        release(by_name[host.name], owner)
        by_name[host.name].hang_up()

    each([site.host for site in sites], work, fanout=fanout, total_seconds=_RELEASE_SECONDS)
