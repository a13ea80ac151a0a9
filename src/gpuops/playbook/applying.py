"""Applying: one step on one node: detect, plan, do, detect again. Check mode is the same without the doing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

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
from gpuops.playbook import rebooting
from gpuops.playbook import systemd_unit as detaching
from gpuops.playbook.binding import BoundStep
from gpuops.playbook.condition import FACTS, Condition
from gpuops.playbook.journal import Journal, JournaledChange, does
from gpuops.playbook.node_session import NodeSession
from gpuops.playbook.planning import Planned, plan
from gpuops.playbook.result import Status, StepResult
from gpuops.playbook.task import Change, Later, NeedsOperator
from gpuops.probes import every_probe
from gpuops.shell import Completed

MOST_PHASES = 5
"""How often a task may find other things to do after what it planned was done."""
_UNREACHED = (ConnectError, HostKeyError, AuthenticationError, LostError, rebooting.GoneError)
# dpkg's own line, in what apt prints, says where it stopped, and the next one why; apt and dnf begin with what went
# wrong and end with generalities
_STOPPED = re.compile(r"^dpkg: error .*\n .*", re.MULTILINE)
_COMPLAINT = re.compile(r"^(?:W: GPG error|E: |dpkg: error|Error: |error: ).*", re.MULTILINE)
End = tuple[Status, str]


def carry_out(
    bound: BoundStep, site: NodeSession, *, handler: bool = False, reboots_next: bool = False, doubt: str = ""
) -> StepResult:
    """Bring the node to what the step says, or in check mode tell what that would take.

    ``reboots_next``: the node is about to be rebooted, so nothing is restarted before. ``doubt``: why nobody can tell
    yet whether the step is due. An `OutputError` (the journal cannot be written) is raised; everything else is in the
    result.
    """
    step, began = bound.step, site.clock()
    tries = 1 + (step.retries if site.journal else 0)
    attempt = 0
    while True:
        attempt += 1
        site.ends = site.clock() + step.timeout_seconds if step.timeout_seconds else float("inf")
        result = _Attempt(bound, site, reboots_next=reboots_next, doubt=doubt).result()
        site.ends = float("inf")
        if not result.out or result.status in ("needs_operator", "interrupted") or attempt == tries:
            break
        site.sleep(step.delay_seconds)
    ignored = result.status == "failed" and step.ignore_errors
    result = replace(result, attempts=attempt, seconds=site.clock() - began, ignored=ignored, handler=handler)
    _remember(site, bound, result)
    return result


def status_of(error: NodeError) -> Status:
    """What a node's error makes of a step."""
    return "unreachable" if isinstance(error, _UNREACHED) else "failed"


def _remember(site: NodeSession, bound: BoundStep, result: StepResult) -> None:
    """What later steps ask about; a handler that is done may be notified, and act, again."""
    if bound.step.register:
        site.registered[bound.step.register] = result.registered
    site.would_change |= result.status in ("would_change", "later")
    if result.handler and not result.out:
        site.made = [made for made in site.made if made.step != bound.step.id]


class _Attempt:
    """One attempt at a step."""

    def __init__(self, bound: BoundStep, site: NodeSession, *, reboots_next: bool, doubt: str) -> None:
        self._bound = bound
        self._doubt = doubt
        self._site = site
        self._reboots_next = reboots_next
        self._done: list[Change] = []
        self._planned = Planned()

    def result(self) -> StepResult:
        """What became of it."""
        step = self._bound.step
        status, why = self._end()
        changes = self._planned.changes if status == "would_change" else self._done
        later = [later.why for later in self._planned.later] if status == "would_change" else []
        told = (tuple(changes), tuple(later), self._planned.value)
        return StepResult(self._site.name, step.id, step.name, status, why, *told)

    def _end(self) -> End:
        try:
            return self._skipped() or self._outcome()
        except OutputError:
            raise
        except NodeError as error:
            return status_of(error), error.what
        except (InputError, LockedError) as error:
            return "failed", str(error)

    def _skipped(self) -> End | None:
        """A condition that is false, or that nobody can decide before something else is changed."""
        if self._doubt:
            return "later", self._doubt
        try:
            false = self._first_false(self._bound.step.when)
        except DocumentError as error:
            if self._site.would_change:
                return "later", str(error)
            raise
        return ("skipped", f"not: {false.text}") if false else None

    def _first_false(self, conditions: Iterable[Condition]) -> Condition | None:
        conditions = tuple(conditions)
        names = sorted({name for condition in conditions for name in condition.facts})
        probes = [every_probe()[name] for name in names]
        answers = self._site.ask([probe.question for probe in probes]) if probes else []
        facts = {p.name: p.read(answer) for p, answer in zip(probes, answers, strict=True)}
        scope = {**self._bound.scope, **self._site.registered, FACTS: facts}
        return next((condition for condition in conditions if not condition.holds(scope)), None)

    def _outcome(self) -> End:
        if self._site.journal:
            self._settle(self._site.journal)
        for _ in range(MOST_PHASES):
            site = self._site
            self._planned = plan(
                self._bound.step.task, self._bound.params, site.machine, site.ask, site.library, site.environment
            )
            todo = [change for change in self._planned.changes if not self._is_past(change)]
            end = self._stopped() or (self._apply(todo, site.journal) if site.journal else self._check(todo))
            if end:
                return end
        wanted = ", ".join(change.what for change in todo)
        return "failed", f"it does not settle: after {MOST_PHASES} rounds of changes it still wants {wanted}"

    def _stopped(self) -> End | None:
        stop = self._planned.stop
        if stop is None:
            return None
        if isinstance(stop, NeedsOperator):
            return "needs_operator", stop.what
        # in check mode, an earlier step that was not done may be all that is missing
        return ("later" if self._site.would_change else "failed"), stop.why

    def _is_past(self, change: Change) -> bool:
        """An act that was done in this run, or a restart that the coming reboot makes pointless."""
        if change.kind == "restart" and self._reboots_next:
            return True
        return change.kind != "state" and any(m.good and m.does == does(change) for m in self._made())

    def _made(self) -> list[JournaledChange]:
        """The changes that this run, also before it was resumed, made for this step."""
        return [made for made in self._site.made if made.step == self._bound.step.id]

    def _check(self, todo: list[Change]) -> End:
        calls = [Later(f"{change.what}: what a function does cannot be told before") for change in todo if change.call]
        self._planned.changes = [change for change in todo if not change.call]
        self._planned.later += calls
        if self._planned.changes:
            return "would_change", ""
        why = "; ".join(later.why for later in self._planned.later)
        if why:
            return ("later" if calls or self._site.would_change else "failed"), why
        return "ok", ""

    def _apply(self, todo: list[Change], journal: Journal) -> End | None:
        """Do what is to be done; how the step ended, or None where it must be looked at again."""
        if not todo:
            return self._settled()
        done = [(change.command, change.reboot, change.call) for change in self._done]
        again = next((change for change in todo if (change.command, change.reboot, change.call) in done), None)
        if again:
            return "failed", f"did not hold: {again.what}"
        busy = self._site.refusal()
        if busy:
            return "needs_operator", busy
        for change in todo:
            if self._site.stopping:
                return "interrupted", f"not begun: {change.what}"
            end = self._lost(change) or self._make(change, journal)
            if end:
                return end
        return None

    def _settled(self) -> End:
        if self._planned.later:
            return "failed", "; ".join(later.why for later in self._planned.later)
        false = self._first_false(self._bound.step.until)
        if false:
            return "failed", f"not yet: {false.text}"
        if self._reboots_next and self._planned.changes:
            return "skipped", "the node reboots next"
        return ("changed" if any(made.good for made in self._made()) else "ok"), ""

    def _lost(self, change: Change) -> End | None:
        """An act of which nobody knows whether it was done is not repeated."""
        if change.kind == "act" and any(m.good is None and m.does == does(change) for m in self._made()):
            return "needs_operator", f"nobody knows whether this was done before the run broke off: {change.what}"
        return None

    def _make(self, change: Change, journal: Journal) -> End | None:
        """Make one change, with a line in the journal before and after it."""
        if change.reboot:
            return self._reboot(change, journal)
        change = self._detachable(change, journal)
        number = self._begin(change, journal)
        done = self._run(change, detaching.unit_of(journal.run, number))
        good = done.exit in change.exits and not done.timed_out and not done.truncated
        self._note(journal, number, done, good=good)
        if good:
            self._done.append(change)
            return None
        log = f"; more in {detaching.log_of(detaching.unit_of(journal.run, number))} there" if change.detach else ""
        return "failed", f"{change.what}: {_ending(done)}{log}"

    def _detachable(self, change: Change, journal: Journal) -> Change:
        """The change; without its unit where the node cannot have one, which is noted once."""
        site = self._site
        if change.detach and site.detaches is None:
            site.detaches = detaching.possible(site)
            if not site.detaches:
                journal.write("note", node=site.name, what="no systemd: what is long ends with the connection")
        return change if site.detaches else replace(change, detach=False)

    def _run(self, change: Change, unit: str) -> Completed:
        if change.call:
            return self._site.call(change.call)
        if change.command is None:
            raise AssertionError(change)
        return detaching.run(self._site, change.command, unit) if change.detach else self._site.do(change.command)

    def _reboot(self, change: Change, journal: Journal) -> End | None:
        boot_id = self._site.boot_id()
        objection = rebooting.objection(self._site, boot_id)
        if objection:
            return "needs_operator", objection
        number = self._begin(change, journal, boot_id)
        self._note(journal, number, rebooting.reboot(self._site, boot_id), good=True)
        self._site.lock()
        self._done.append(change)
        return None

    def _begin(self, change: Change, journal: Journal, boot_id: str = "") -> int:
        step = self._bound.step
        number = journal.begin(self._site.name, step.id, change, step.notify, boot_id=boot_id)
        about = (number, self._site.name, step.id, change.kind, does(change), change.detach, boot_id)
        self._site.made.append(JournaledChange(*about))
        return number

    def _note(self, journal: Journal, number: int, done: Completed | None = None, *, good: bool) -> None:
        journal.end(number, done, good=good)
        self._site.made = [replace(m, good=good) if m.number == number else m for m in self._site.made]

    def _settle(self, journal: Journal) -> None:
        """Learn how those changes ended that were under way when a run broke off, where the node can tell."""
        if not self._site.earlier_ended:
            detaching.wait_for_earlier(self._site, journal.run)
            self._site.earlier_ended = True
        for made in self._made():
            if made.good is None and made.boot_id and self._site.boot_id() != made.boot_id:
                self._note(journal, made.number, good=True)
            elif made.good is None and made.detach:
                done = detaching.wait(
                    self._site, detaching.unit_of(journal.run, made.number), detaching.LONGEST_SECONDS
                )
                if done:
                    self._note(journal, made.number, done, good=done.exit == 0)


def _ending(done: Completed) -> str:
    how = f"killed after {done.seconds:.0f} s" if done.timed_out else f"ended with {done.exit}"
    found = _STOPPED.search(done.out + done.err) or _COMPLAINT.search(done.err + done.out)
    said = found[0].replace("\n", "") if found else done.last_words()
    return f"{how} and said: {said or 'nothing'}"
