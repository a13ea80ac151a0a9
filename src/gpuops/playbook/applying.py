"""One attempt at a step on one node: detect, plan, change, detect again. Check mode omits the change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gpuops.errors import (
    AuthenticationError,
    ConnectError,
    DocumentError,
    HostKeyError,
    InputError,
    LockedError,
    LostError,
    NodeError,
    OutputError,
)
from gpuops.playbook import rebooting, systemd_unit
from gpuops.playbook.binding import Turn
from gpuops.playbook.condition import FACTS, Condition
from gpuops.playbook.journal import Journal, JournaledChange, change_key
from gpuops.playbook.node_session import NodeSession
from gpuops.playbook.overlay import DependsError
from gpuops.playbook.planning import Planned, plan
from gpuops.playbook.play import Step
from gpuops.playbook.result import Status, StepResult
from gpuops.playbook.task import Change, Later, NeedsOperator
from gpuops.probes import every_probe
from gpuops.shell import Completed

MOST_PHASES = 5
"""Maximum number of times that a task may plan further changes after the previous ones were made."""
_UNREACHED = (ConnectError, HostKeyError, AuthenticationError, LostError, rebooting.GoneError)
# in apt's output, dpkg's own line says where it stopped and the next line why; apt and dnf begin with the error and end
# with generalities
_STOPPED = re.compile(r"^dpkg: error .*\n .*", re.MULTILINE)
_COMPLAINT = re.compile(r"^(?:W: GPG error|E: |dpkg: error|Error: |error: ).*", re.MULTILINE)
End = tuple[Status, str]
NOTHING: Mapping[str, Any] = MappingProxyType({})


def facts_of(session: NodeSession, names: Iterable[str]) -> dict[str, Any]:
    """Return the facts of the probes ``names``, queried now."""
    probes = [every_probe()[name] for name in sorted(names)]
    answers = session.foresee([probe.question for probe in probes]) if probes else []
    return {probe.name: probe.read(answer) for probe, answer in zip(probes, answers, strict=True)}


def doubtful(session: NodeSession, why: str, params: object = "") -> End:
    """Return how a step ended that cannot be done now: in check mode, an earlier change may be what is missing."""
    if not session.overlay:
        return "failed", why
    return "later", f"{why}; {session.overlay.suspects(f'{why} {params}')}"


def status_of(error: NodeError) -> Status:
    """Return the status of a step that ended with a node's error."""
    return "unreachable" if isinstance(error, _UNREACHED) else "failed"


@dataclass(frozen=True)
class Work:
    """What every attempt at a step, or at one item of its loop, has in common; ``key`` names it in the journal.

    ``was_made_before``: this run made a change for it before it was interrupted.
    """

    step: Step
    turn: Turn
    key: str
    reboots_next: bool
    doubt: str
    was_made_before: bool


class Attempt:
    """One attempt at a step, or at one item of its loop."""

    def __init__(self, work: Work, session: NodeSession) -> None:
        self._step = work.step
        self._turn = work.turn
        self._key = work.key
        self._doubt = work.doubt
        self._session = session
        self._reboots_next = work.reboots_next
        self._was_made_before = work.was_made_before
        self._output: dict[str, object] | None = None
        self._applied: list[Change] = []
        self._planned = Planned()
        self._error: NodeError | None = None

    def result(self) -> StepResult:
        """Return its outcome."""
        status, why = self._status()
        changes = self._planned.changes if status == "would_change" else self._applied
        later = [later.why for later in self._planned.later] if status == "would_change" else []
        return replace(self._so_far(status, why), changes=tuple(changes), later=tuple(later), error=self._error)

    def _so_far(self, status: Status, why: str = "") -> StepResult:
        """Return the result as ``register`` keeps it; the output of a command is the value of a task without one."""
        value = self._output if self._planned.value is None else self._planned.value
        return StepResult(self._session.name, self._step.id, self._step.name, status, why, value=value)

    def _status(self) -> End:
        try:
            return self._skipped() or self._judged(*self._outcome())
        except OutputError:
            raise
        except DependsError as error:
            return "later", str(error)
        except NodeError as error:
            self._error = error
            return status_of(error), error.what
        except (InputError, LockedError) as error:
            return "failed", str(error)

    def _skipped(self) -> End | None:
        """Return a status if a condition is false, or if only an earlier change decides it."""
        if self._doubt:
            return "later", self._doubt
        try:
            false = self._first_false(self._step.when)
        except DocumentError as error:
            if self._session.overlay:
                return doubtful(self._session, str(error))
            raise
        return ("skipped", f"not: {false.text}") if false else None

    def _judged(self, status: Status, why: str) -> End:
        """Return how the step ended by its own conditions."""
        step = self._step
        if not step.judging or status not in ("ok", "changed", "would_change"):
            return status, why
        own = {step.register: self._so_far(status).registered} if step.register else {}
        try:
            if any(self._first_false([condition], own) is None for condition in step.failed_when):
                why = f"failed_when: {' and '.join(condition.text for condition in step.failed_when)}"
                return doubtful(self._session, why)
            false = self._first_false(step.until, own)
            is_change = not step.changed_when or self._first_false(step.changed_when, own) is None
        except (DependsError, DocumentError) as error:
            if not self._session.journal:
                return status if status == "would_change" else "later", str(error)
            if self._was_made_before and not self._applied:  # its output went with the run that was interrupted
                return status, why
            raise
        if false:
            return ("failed" if self._session.journal else "later"), f"not yet: {false.text}"
        return (status, why) if is_change else ("ok", "")

    def _first_false(self, conditions: Iterable[Condition], own: Mapping[str, Any] = NOTHING) -> Condition | None:
        conditions = tuple(conditions)
        facts = facts_of(self._session, {name for condition in conditions for name in condition.facts})
        scope = {**self._turn.scope, **self._session.registered, **own, FACTS: facts}
        return next((condition for condition in conditions if not condition.holds(scope)), None)

    def _outcome(self) -> End:
        if self._session.journal:
            self._collect_unfinished(self._session.journal)
        for _ in range(MOST_PHASES):
            session = self._session
            overlay = None if session.journal else session.overlay
            self._planned = plan(
                self._step.task, self._turn.params, session.machine, session.ask, session.library, session.environment,
                overlay,
            )  # fmt: skip
            todo = [change for change in self._planned.changes if not self._is_past(change)]
            end = self._stopped() or (self._apply(todo, session.journal) if session.journal else self._check(todo))
            if end:
                return end
        pending = ", ".join(change.what for change in todo)
        return "failed", f"the node does not settle: after {MOST_PHASES} rounds of changes it still needs {pending}"

    def _stopped(self) -> End | None:
        stop = self._planned.stop
        if stop is None:
            return None
        if isinstance(stop, NeedsOperator):
            return "needs_operator", stop.what
        # in check mode, only an earlier change that was not made may be missing
        return doubtful(self._session, stop.why, self._turn.params)

    def _is_past(self, change: Change) -> bool:
        """Return True if the action was done in this run, or if the coming reboot makes the restart pointless."""
        if change.kind == "restart" and self._reboots_next:
            return True
        key = change_key(change)
        if self._step.until:  # which asks for repetition
            return change.kind != "state" and key in map(change_key, self._applied)
        return change.kind != "state" and any(made.succeeded and made.change_key == key for made in self._made())

    def _made(self) -> list[JournaledChange]:
        """Return the changes that this run made for this step, including those before it was resumed."""
        return [made for made in self._session.made if made.step == self._key]

    def _check(self, todo: list[Change]) -> End:
        calls = [Later(f"{change.what}: a function's effect is not known in advance") for change in todo if change.call]
        self._planned.changes = [change for change in todo if not change.call]
        self._planned.later += calls
        if self._planned.changes:
            return "would_change", ""
        why = "; ".join(later.why for later in self._planned.later)
        if why:
            return ("later", why) if calls or self._planned.depends else doubtful(self._session, why, self._turn.params)
        return "ok", ""

    def _apply(self, todo: list[Change], journal: Journal) -> End | None:
        """Make the changes; return how the step ended, or None if the node must be inspected again."""
        if not todo:
            return self._settled()
        applied = [(change.command, change.reboot, change.call) for change in self._applied]
        again = next((change for change in todo if (change.command, change.reboot, change.call) in applied), None)
        if again:
            return "failed", f"did not take effect: {again.what}"
        busy = self._session.refusal()
        if busy:
            return "needs_operator", busy
        for change in todo:
            if self._session.stopping:
                return "interrupted", f"not started: {change.what}"
            end = self._unknown_outcome(change) or self._apply_change(change, journal)
            if end:
                return end
        return None

    def _settled(self) -> End:
        if self._planned.later:
            return "failed", "; ".join(later.why for later in self._planned.later)
        if self._reboots_next and self._planned.changes:
            return "skipped", "the node reboots next"
        return ("changed" if any(made.succeeded for made in self._made()) else "ok"), ""

    def _unknown_outcome(self, change: Change) -> End | None:
        """Stop at an action with an unknown outcome instead of repeating it."""
        key = change_key(change)
        if change.kind == "act" and any(made.succeeded is None and made.change_key == key for made in self._made()):
            return "needs_operator", f"unknown whether this was done before the run was interrupted: {change.what}"
        return None

    def _apply_change(self, change: Change, journal: Journal) -> End | None:
        """Make one change, with a line in the journal before and after it."""
        if change.reboot:
            return self._reboot(change, journal)
        change = self._detachable(change, journal)
        number = self._begin(change, journal)
        unit = systemd_unit.unit_of(journal.run, number)
        completed = self._run(change, unit)
        succeeded = not (change.exits and completed.exit not in change.exits)
        succeeded = succeeded and not completed.timed_out and not completed.truncated
        self._output = {"out": completed.out, "err": completed.err, "exit": completed.exit}
        self._note(journal, number, completed, succeeded=succeeded)
        if succeeded:
            self._applied.append(change)
            return None
        log = f"; see {systemd_unit.log_of(unit)} on the node" if change.detach else ""
        return "failed", f"{change.what}: {_format_failure(completed)}{log}"

    def _detachable(self, change: Change, journal: Journal) -> Change:
        """Return the change, not detached if the node's systemd cannot run a unit; note that once."""
        session = self._session
        if change.detach and session.detaches is None:
            session.detaches = systemd_unit.possible(session)
            if not session.detaches:
                journal.write("note", node=session.name, what="no systemd: long commands end with the connection")
        return change if session.detaches else replace(change, detach=False)

    def _run(self, change: Change, unit: str) -> Completed:
        if change.call:
            return self._session.call(change.call)
        if change.command is None:
            raise AssertionError(change)
        if change.detach:
            return systemd_unit.run(self._session, change.command, unit)
        return self._session.do(change.command)

    def _reboot(self, change: Change, journal: Journal) -> End | None:
        boot_id = self._session.boot_id()
        objection = rebooting.objection(self._session, boot_id)
        if objection:
            return "needs_operator", objection
        number = self._begin(change, journal, boot_id)
        self._note(journal, number, rebooting.reboot(self._session, boot_id), succeeded=True)
        self._session.lock()
        self._applied.append(change)
        return None

    def _begin(self, change: Change, journal: Journal, boot_id: str = "") -> int:
        notify = () if self._step.changed_when else self._step.notify  # which its output decides
        number = journal.begin(self._session.name, self._key, change, notify, boot_id=boot_id)
        about = (number, self._session.name, self._key, change.kind, change_key(change), change.detach, boot_id)
        self._session.made.append(JournaledChange(*about))
        return number

    def _note(self, journal: Journal, number: int, completed: Completed | None = None, *, succeeded: bool) -> None:
        journal.end(number, completed, succeeded=succeeded)
        self._session.made = [replace(m, succeeded=succeeded) if m.number == number else m for m in self._session.made]

    def _collect_unfinished(self, journal: Journal) -> None:
        """Record the outcome of changes that were running when a run was interrupted, as far as the node reports it.

        Those of later steps count too: no step starts beside a change that still runs.
        """
        if not self._session.earlier_ended:
            systemd_unit.wait_for_earlier(self._session, journal.run)
            self._session.earlier_ended = True
        for made in self._session.made:
            if made.succeeded is None and made.boot_id and self._session.boot_id() != made.boot_id:
                self._note(journal, made.number, succeeded=True)
            elif made.succeeded is None and made.detach:
                unit = systemd_unit.unit_of(journal.run, made.number)
                completed = systemd_unit.wait(self._session, unit, systemd_unit.LONGEST_SECONDS)
                if completed:
                    self._note(journal, made.number, completed, succeeded=completed.exit == 0)


def _format_failure(completed: Completed) -> str:
    how = f"killed after {completed.seconds:.0f} s" if completed.timed_out else f"ended with {completed.exit}"
    match = _STOPPED.search(completed.out + completed.err) or _COMPLAINT.search(completed.err + completed.out)
    last_line = match[0].replace("\n", "") if match else completed.last_words()
    return f"{how}: {last_line or 'no output'}"
