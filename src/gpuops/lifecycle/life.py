"""The path of nodes through the gates; a node that fails a gate stays out, with the reason."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuops.errors import GpuopsError, InputError
from gpuops.inventory import Host
from gpuops.lifecycle.caps import DAY, Caps
from gpuops.lifecycle.fingerprint import unreadable_parts
from gpuops.lifecycle.gates import Gate, GateState, is_still_valid, missing_proofs, proofs, state_after
from gpuops.lifecycle.reopening import Unproved
from gpuops.lifecycle.schedulers import Scheduler, drain_each
from gpuops.lifecycle.states import State, demotion, state_of, transition
from gpuops.proposal import propose
from gpuops.reasons import Conclusion, Objection, most_severe
from gpuops.store import Cause, ClosingCheck, Fingerprint, GatePass, HostEvent, StateChange, Store

_LEFT_OUT = Objection("left out", severity="left_out")
_CONCLUSIONS: Mapping[str, Conclusion] = {"failed": "failed", "incomplete": "incomplete", "locked": "locked"}
Attempt = Callable[[Sequence[Host]], Mapping[str, Objection]]
"""Runs a gate on nodes and returns the objections by node; a node without an objection passed."""
OnResult = Callable[[str, Gate, GateState, str], None]
"""Receives each node's outcome at each gate: the node, the gate, the outcome, and the same in words."""


@dataclass
class NodeLifecycle:
    """The nodes of one run. ``fingerprints`` are those that it read, ``stopped`` the gate at which a node stopped.

    ``caps`` limit how many nodes it may close; None is no limit. ``unproved`` returns the checks that closed a node and
    have not passed since. ``held`` are the nodes that a cap kept open.
    """

    store: Store
    run: str
    scheduler: Scheduler
    on_result: OnResult = lambda _node, _gate, _state, _text: None
    caps: Caps | None = None
    unproved: Callable[[str], Sequence[Unproved]] = lambda _node: ()
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    stopped: dict[str, tuple[Gate, Objection]] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    _demotions: dict[str, Objection] = field(default_factory=dict, init=False)
    """Objections that the store already holds as a demotion, word for word."""

    def advance(self, hosts: Sequence[Host], gates: Sequence[Gate], attempts: Mapping[str, Attempt]) -> list[Host]:
        """Run ``gates`` on ``hosts``, each as far as it gets; return the hosts that passed all of them.

        A gate without an attempt is skipped: it stops no node, and no node has passed it.
        """
        for gate in gates:
            due = [host for host in hosts if gate.name in attempts and not self._is_still_valid(host, gate)]
            objections = attempts[gate.name](due) if due else {}
            for host in hosts:
                objection = objections.get(host.name) if gate.name in attempts else _LEFT_OUT
                if objection and objection.severity != "left_out":
                    self._stop(host, gate, objection)
                else:
                    self._pass(host, gate, was_tried=host in due, left_out=objection)
            hosts = [host for host in hosts if host.name not in self.stopped]
        for host in hosts:
            self._clear(host)
        return list(hosts)

    def compare_fingerprints(
        self, hosts: Sequence[Host], fingerprints: Mapping[str, Fingerprint]
    ) -> dict[str, Objection]:
        """Compare the nodes with the machines that were tested.

        An admitted node that is another machine is demoted and drained. One with unreadable parts is only reported.
        """
        self.fingerprints |= fingerprints
        readable = [host for host in hosts if host.name in fingerprints]
        objections = {host.name: self._compare_fingerprint(host, fingerprints[host.name]) for host in readable}
        return {node: objection for node, objection in objections.items() if objection}

    def _compare_fingerprint(self, host: Host, fingerprint: Fingerprint) -> Objection | None:
        before = self.store.latest(host.name)
        is_admitted = before is not None and state_of(before) == "admitted"
        if demotion(before, fingerprint):
            demote = functools.partial(_demoted, host.name, fingerprint)
            event = self._record_unless_held(host, demote, lambda change: f"it is {change.why}")
            if isinstance(event, Objection) or not is_admitted:
                return event if isinstance(event, Objection) else None
            objection = Objection(event.why, "wait for its jobs to end, and onboard it again")
            return self._drained(host, "provisioned", event.why, objection)
        unreadable = unreadable_parts(before.fingerprint, fingerprint) if before and is_admitted else ""
        do = f"find out why: {propose('validate', '--limit', host.name)}"
        return Objection(f"its {unreadable} can no longer be read", do, "incomplete") if unreadable else None

    def _record_unless_held(
        self, host: Host, change_of: Callable[[HostEvent | None], StateChange], clause: Callable[[StateChange], str]
    ) -> HostEvent | Objection:
        """Record a change that closes an admitted node; if a cap holds, return what keeps it open, with the ``clause``.

        The store decides, so that no other run closes a node in between.
        """

        def decide(before: HostEvent | None) -> StateChange:
            change = change_of(before)
            held = self._held(host.name) if state_of(before) == "admitted" else ""
            if held:
                raise _HeldError(host.name, held, clause(change))
            return change

        try:
            return self.store.record_transition(host.name, self.run, decide)
        except _HeldError as held:
            self.held.add(host.name)
            return Objection(str(held), held.do, "incomplete")

    def _held(self, node: str) -> str:
        if self.caps is None:
            return ""
        since = dt.datetime.now(dt.timezone.utc) - DAY
        return self.caps.held(node, self.store.closed_since(since, self.run), self.store.closed_since(since))

    def _drained(self, host: Host, state: State, why: str, objection: Objection) -> Objection:
        """Drain a node that was closed; return the objection to it, with the scheduler's complaint if there is one."""
        complaint = self.scheduler.drain([host], state, why).get(host.name, "")
        if complaint:
            return replace(objection, why=f"{objection.why}; it could not be drained: {complaint}")
        self._demotions[host.name] = objection
        return objection

    def close(self, host: Host, gate: str, objection: Objection) -> Objection:
        """Drain an admitted node that fails checks at ``gate``, unless a cap holds; return the objection to it."""
        why = f"stopped at {gate}: {objection.why}"

        def drain(before: HostEvent | None) -> StateChange:
            return replace(transition(before, "drained", why, cause="stopped"), checks=_closing(objection, gate))

        event = self._record_unless_held(host, drain, lambda _change: f"it fails {objection.why}")
        if isinstance(event, Objection):
            return event
        return self._drained(host, "drained", f"{gate}: {objection.why}", objection)

    def missing_proofs(self, host: Host) -> str:
        """Return the proofs that a node lacks for admission, as a sentence; an empty string if none is missing."""
        now, fingerprint = dt.datetime.now(dt.timezone.utc), self.fingerprints.get(host.name, {})
        return missing_proofs(self.store.latest(host.name), self._proofs(host), fingerprint, now)

    def drain(self, hosts: Sequence[Host], why: str) -> dict[str, Objection]:
        """Drain nodes that are not admitted; return objections to those that cannot be, or that others drained."""
        states = {host.name: state_of(self.store.latest(host.name)) for host in hosts}
        outside = [host for host in hosts if states[host.name] != "admitted"]
        theirs = self.scheduler.drained_by_others(outside)
        complaints = drain_each(self.scheduler, [host for host in outside if host.name not in theirs], states, why)
        return {
            **{node: _incomplete(f"cannot drain it: {complaint}") for node, complaint in complaints.items()},
            **{node: _incomplete(reason) for node, reason in theirs.items()},
        }

    def _is_still_valid(self, host: Host, gate: Gate) -> bool:
        """Return True if the node need not pass the gate again; what closed it there has to pass again."""
        fingerprint = self.fingerprints.get(host.name, {})
        now = dt.datetime.now(dt.timezone.utc)
        if any(each.check.gate == gate.name for each in self.unproved(host.name)):
            return False
        return bool(fingerprint) and is_still_valid(gate, self._proofs(host), fingerprint, now)

    def _proofs(self, host: Host) -> tuple[GatePass, ...]:
        return proofs(self.store.history(host.name), self.store.gates_passed(host.name))

    def _pass(self, host: Host, gate: Gate, *, was_tried: bool, left_out: Objection | None) -> None:
        fingerprint = self.fingerprints.get(host.name, {})
        why = f"{gate.name} was {left_out.why}" if left_out else gate.proves
        if state_after(self.store.latest(host.name), gate, why, fingerprint):
            decide = functools.partial(_raised, gate, why, fingerprint)
            self.store.record_transition(host.name, self.run, decide)
        if left_out:
            self.on_result(host.name, gate, "left_out", left_out.why)
        elif was_tried:
            self.store.record_gate(host.name, gate.name, self.run, fingerprint)
            self.on_result(host.name, gate, "passed", "passed")
        else:
            self.on_result(host.name, gate, "kept", "passed before, on the same machine")

    def _stop(self, host: Host, gate: Gate, objection: Objection) -> None:
        state = state_of(self.store.latest(host.name))
        if self._demotions.get(host.name) is not objection:
            why = f"stopped at {gate.name}: {objection.why}"
            self._record_reason(host, why, "stopped", _closing(objection, gate.name))
        self.stopped[host.name] = (gate, objection)
        self.on_result(host.name, gate, "stopped", f"stopped: {format_objection(objection)}")
        if state != "admitted":
            self.scheduler.drain([host], state, f"{gate.name}: {objection.why}")

    def _clear(self, host: Host) -> None:
        """Record that an admitted node passed the gate at which it was stopped before."""
        before = self.store.latest(host.name)
        if before and before.cause == "stopped":
            self._record_reason(host, "it passed the gate that had stopped it")

    def _record_reason(self, host: Host, why: str, cause: Cause = "", checks: tuple[ClosingCheck, ...] = ()) -> None:
        """Record another reason for the current state of the node, and the ``checks`` that failed."""

        def decide(now: HostEvent | None) -> StateChange:
            return replace(transition(now, state_of(now), why, cause=cause), checks=checks)

        self.store.record_transition(host.name, self.run, decide)


class _HeldError(GpuopsError):
    """A cap that keeps a node admitted which gpuops would drain; ``why`` is a clause about it."""

    def __init__(self, node: str, held: str, why: str) -> None:
        super().__init__(f"{held}; it stays admitted though {why}")
        self.do = f"find out why so many changed; to drain it: {propose('drain', node, '--reason', 'WHY', '--force')}"


def _closing(objection: Objection, gate: str) -> tuple[ClosingCheck, ...]:
    """Return the checks because of which ``objection`` closes a node at ``gate``."""
    return tuple(ClosingCheck(name, objection.level, gate) for name in objection.checks)


def _demoted(node: str, fingerprint: Fingerprint, before: HostEvent | None) -> StateChange:
    change = demotion(before, fingerprint)
    if change is None:
        raise InputError(f"{node} was changed by another run in the meantime; run this command again")
    return change


def _raised(gate: Gate, why: str, fingerprint: Fingerprint, before: HostEvent | None) -> StateChange:
    change = state_after(before, gate, why, fingerprint)
    return change or transition(before, state_of(before), why, fingerprint)


def _incomplete(why: str) -> Objection:
    return Objection(why, severity="incomplete")


def format_objection(objection: Objection) -> str:
    """Return ``its GPUs cannot be counted; to do: …`` as one sentence."""
    return f"{objection.why}; to do: {objection.do}" if objection.do else objection.why


def conclusion(objections: Iterable[Objection]) -> Conclusion:
    """Return the conclusion of a run that raised ``objections``; one that is ``left_out`` stops no node."""
    return most_severe(_CONCLUSIONS.get(objection.severity, "ok") for objection in objections)
