"""Runs plays over nodes, batch by batch and step by step; failed nodes drop out, and too many failures end the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuops.cancellation import CancelToken
from gpuops.errors import CancelledError, LockedError, NodeError
from gpuops.fleet import FANOUT, Outcome, each
from gpuops.inventory import Host
from gpuops.playbook.applying import status_of
from gpuops.playbook.binding import Bound
from gpuops.playbook.locking import Owner, Takeover, release, take
from gpuops.playbook.node_session import NodeSession
from gpuops.playbook.play import Flush, Play, Step, batches
from gpuops.playbook.record import conclude
from gpuops.playbook.result import StepResult
from gpuops.playbook.stepping import run_step
from gpuops.reasons import EXIT_CODES

_WEEK_SECONDS = 7 * 86400.0
_RELEASE_SECONDS = 20.0


@dataclass(frozen=True)
class BoundPlay:
    """A play for its nodes: the selected ``steps``, bound."""

    play: Play
    hosts: tuple[Host, ...]
    steps: tuple[Step | Flush, ...]
    bound: Bound


@dataclass
class RunState:
    """The state of a run: every result in order, why it ``stopped`` early, and the handlers due on each node.

    ``taken`` are the nodes whose lock was taken over.
    """

    results: list[StepResult] = field(default_factory=list)
    stopped: str = ""
    interrupted: bool = False
    waiting: dict[str, list[str]] = field(default_factory=dict)
    locked: list[LockedError] = field(default_factory=list)
    taken: dict[str, Takeover] = field(default_factory=dict)
    seconds: float = 0.0
    _out: set[str] = field(default_factory=set)

    def out(self, node: str) -> bool:
        """Return True if the node takes no further steps."""
        return node in self._out

    def add(self, result: StepResult) -> None:
        """Add one result."""
        self.results.append(result)
        self.interrupted |= result.status == "interrupted"
        if result.out:
            self._out.add(result.node)

    def exit_code(self, *, check: bool) -> int:
        """Return 0 ok or changed, 1 failed (or, in check mode, to be changed), 3 unreachable or needs an operator.

        Return 4 if another run holds a node, 130 after Ctrl-C.
        """
        locked = bool(self.locked)
        return EXIT_CODES[conclude(self.results, check=check, interrupted=self.interrupted, locked=locked)]


OnResult = Callable[[StepResult], None]


class Runner:
    """Runs plays on ``sessions`` and records the results in ``state``. ``on_result`` is called with each at once.

    At most ``fanout`` nodes work at a time; the connections of at most ``most_open`` are kept from step to step.
    ``cancel`` starts no new changes and lets the running ones complete, as Ctrl-C does.
    """

    def __init__(
        self,
        sessions: dict[str, NodeSession],
        state: RunState,
        *,
        fanout: int = FANOUT,
        most_open: int = FANOUT,
        on_result: OnResult = lambda _: None,
        cancel: CancelToken | None = None,
    ) -> None:
        self.state = state
        self._cancel = cancel
        self._most_open = most_open
        self._sessions = sessions
        self._fanout = fanout
        self._doubts: dict[tuple[str, str], str] = {}
        self._on_result = on_result

    def run(self, assignments: Sequence[BoundPlay]) -> RunState:
        """Run every play, until all are done or one stops; a node that failed in a play is not in the next ones."""
        gone: set[str] = set()
        for assignment in assignments:
            hosts = [host for host in assignment.hosts if host.name not in gone]
            for batch in batches(hosts, assignment.play.serial):
                self._batch(assignment, batch)
                if self.state.stopped or self.state.interrupted:
                    return self.state
            gone = {host.name for host in assignment.hosts if self.state.out(host.name)} | gone
        return self.state

    def _batch(self, assignment: BoundPlay, batch: list[Host]) -> None:
        """Run the steps one after another, each on all nodes of the batch at once; then the handlers.

        If too many nodes failed, those that were changed already still complete the play, so that none stays partly
        changed.
        """
        for step in (*assignment.steps, Flush(assignment.play.where)):
            if isinstance(step, Flush):
                self._handlers(assignment, batch)
            else:
                self._take(assignment, step, self._remaining(assignment.play, batch))
            self._check_failures(assignment.play, batch)
            if self.state.interrupted:
                return

    def _remaining(self, play: Play, batch: Sequence[Host]) -> list[Host]:
        """Return the nodes of the batch that continue."""
        hosts = [host for host in batch if not self.state.out(host.name)]
        if not self.state.stopped:
            return hosts
        return [] if play.any_errors_fatal else [host for host in hosts if self._is_partly_changed(play, host)]

    def _is_partly_changed(self, play: Play, host: Host) -> bool:
        """Return True if the play has changed the node."""
        steps = {step.id for step in play.every_step}
        return any(made.step_id in steps for made in self._sessions[host.name].made)

    def _take(self, assignment: BoundPlay, step: Step, hosts: Sequence[Host]) -> None:
        """Let every host take the step, or the first one for all of them."""
        first, others = (hosts[:1], hosts[1:]) if step.run_once else (hosts, ())
        self._step(assignment, step, first)
        if not others or self.state.interrupted:
            return
        session, why = self._sessions[first[0].name], f"it runs once, on {first[0].name}, and did not succeed there"
        for host in others:
            if self.state.out(first[0].name):
                result = StepResult(host.name, step.id, step.name, "failed", why)
                self._on_result(result)
                self._keep(result, step)
            elif step.register:
                self._sessions[host.name].registered[step.register] = session.registered[step.register]

    def _step(self, assignment: BoundPlay, step: Step, hosts: Sequence[Host], *, handler: bool = False) -> None:
        def work(host: Host) -> StepResult:
            rebooting = handler and step.task.name != "reboot" and self._reboots_next(assignment.play, host)
            doubt = self._doubt(host, step) if handler else ""
            bound, session = assignment.bound[host.name][step.id], self._sessions[host.name]
            session.on_activity(step.name)
            try:
                with session.at_work:
                    return run_step(bound, session, handler=handler, reboots_next=rebooting, doubt=doubt)
            finally:
                if len(hosts) > self._most_open:
                    session.disconnect()

        outcomes = each(
            hosts,
            work,
            fanout=self._fanout,
            total_seconds=_WEEK_SECONDS,
            watch=lambda outcome: self._on_result(_result(outcome, step)),
            stop=self._stop,
            cancel=self._cancel,
        )
        for outcome in outcomes:
            self._keep(_result(outcome, step), step)
        self.state.interrupted |= outcomes.interrupted

    def _stop(self) -> None:
        """Start no new changes, and let the running ones complete."""
        for session in self._sessions.values():
            session.stopping = True

    def _keep(self, result: StepResult, step: Step) -> None:
        self.state.add(result)
        session = self._sessions[result.node]
        if result.changes and result.status != "ok":
            waiting = self.state.waiting.setdefault(result.node, [])
            waiting += [name for name in step.notify if name not in waiting]
            if session.journal and step.changed_when and not self.state.interrupted:
                session.journal.write("waiting", node=result.node, notify=[*step.notify])
        elif result.status == "later":
            doubt = f'due if "{step.name}" changes anything'
            self._doubts.update({(result.node, name): doubt for name in step.notify})
        if session.journal and not self.state.interrupted:
            fields = {"name": step.name, "status": result.status, "why": result.why, "handler": result.handler}
            session.journal.write("step", durable=False, node=result.node, step=step.id, **fields)

    def _reboots_next(self, play: Play, host: Host) -> bool:
        waiting = self.state.waiting.get(host.name, [])
        return any(h.name in waiting and h.task.name == "reboot" for h in play.handlers)

    def _waits(self, host: Host, handler: Step) -> bool:
        return handler.name in self.state.waiting.get(host.name, [])

    def _doubt(self, host: Host, handler: Step) -> str:
        """Return why check mode cannot know whether the handler will run; empty if it can."""
        return "" if self._waits(host, handler) else self._doubts.get((host.name, handler.name), "")

    def _handlers(self, assignment: BoundPlay, batch: Sequence[Host]) -> None:
        """Run the handlers that were notified, or in check mode may be, in the order of the play, a reboot last."""
        play = assignment.play
        for handler in sorted(play.handlers, key=lambda h: h.task.name == "reboot"):
            remaining = self._remaining(play, batch)
            hosts = [host for host in remaining if self._waits(host, handler) or self._doubt(host, handler)]
            self._step(assignment, handler, hosts, handler=True)
            for host in self._remaining(play, hosts):
                self._doubts.pop((host.name, handler.name), None)
                if self._waits(host, handler):
                    self.state.waiting[host.name].remove(handler.name)
            if self.state.interrupted:
                return

    def _check_failures(self, play: Play, batch: Sequence[Host]) -> None:
        """Stop if more of the batch failed than the play allows, or all of it; check mode risks nothing.

        After Ctrl-C there is nothing to stop, and a node that it interrupted has not failed.
        """
        if self.state.interrupted or not any(session.journal for session in self._sessions.values()):
            return
        failed = sum(self.state.out(host.name) for host in batch)
        percentage = 100 * failed / len(batch)
        if failed and (play.any_errors_fatal or failed == len(batch) or percentage > play.max_fail_percentage):
            self.state.stopped = f'{failed} of {len(batch)} nodes of a batch failed in play "{play.name}"'
            if failed < len(batch):
                limit = f"max_fail_percentage is {play.max_fail_percentage:g}"
                self.state.stopped += f"; {'any_errors_fatal' if play.any_errors_fatal else limit}"


def _result(outcome: Outcome[StepResult], step: Step) -> StepResult:
    """Return the result, or one made from the node's error; raise any other error."""
    if outcome.value is not None:
        return outcome.value
    error = outcome.error
    if isinstance(error, CancelledError):
        return StepResult(outcome.node, step.id, step.name, "interrupted", str(error))
    if isinstance(error, NodeError):
        return StepResult(outcome.node, step.id, step.name, "failed", error.what, error=error)
    raise error or AssertionError(outcome)


def lock(sessions: Sequence[NodeSession], owner: Owner, *, break_dead: bool, fanout: int, most_open: int) -> RunState:
    """Lock every node, or none if another run holds one. The state holds the nodes that did not answer."""
    by_name = {session.name: session for session in sessions}

    def work(host: Host) -> Takeover | None:
        taken = take(by_name[host.name], owner, break_dead=break_dead)
        if len(sessions) > most_open:
            by_name[host.name].disconnect()
        return taken

    outcomes = each([session.host for session in sessions], work, fanout=fanout)
    locked = [o.error for o in outcomes if isinstance(o.error, LockedError)]
    taken = {o.node: o.value for o in outcomes if o.value}
    state = RunState(locked=locked, interrupted=outcomes.interrupted, taken=taken)
    if state.locked or state.interrupted:
        unlock([by_name[o.node] for o in outcomes if o.error is None], owner, fanout=fanout)
    for outcome in outcomes:
        if isinstance(outcome.error, NodeError):
            error, status = outcome.error, status_of(outcome.error)
            state.add(StepResult(outcome.node, "lock", "lock the node", status, error.what, error=error))
    return state


def unlock(sessions: Sequence[NodeSession], owner: Owner, *, fanout: int) -> None:
    """Release our locks and disconnect; if a node does not answer, its lock names this run to the next one."""
    by_name = {session.name: session for session in sessions}

    def work(host: Host) -> None:
        release(by_name[host.name], owner)
        by_name[host.name].disconnect()

    each([session.host for session in sessions], work, fanout=fanout, total_seconds=_RELEASE_SECONDS)
