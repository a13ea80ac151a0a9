"""Life: nodes on their way through the gates; what they pass is kept, and who fails stays out with the reason."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.errors import InputError
from gpuops.inventory import Host
from gpuops.lifecycle.fingerprint import untold
from gpuops.lifecycle.gates import Gate, counts_still, earned, proofs, unproved
from gpuops.lifecycle.schedulers import Scheduler, close_each
from gpuops.lifecycle.states import demotion, state_of, step
from gpuops.reasons import Conclusion, Objection, gravest
from gpuops.store import Fingerprint, GatePass, HostEvent, StateChange, Store

_LEFT_OUT = Objection("left out", severity="left_out")
_CONCLUSIONS: Mapping[str, Conclusion] = {"failed": "failed", "incomplete": "incomplete", "locked": "locked"}
_ASK = "gpuops validate --limit {} tells why"
Attempt = Callable[[Sequence[Host]], Mapping[str, Objection]]
"""Tries a gate on nodes and returns the objections by node; a node without one passed."""
Watch = Callable[[str, Gate, str], None]


@dataclass
class NodeLifecycle:
    """The nodes of one run. ``fingerprints`` are those that the run found; ``watch`` hears what becomes of each."""

    store: Store
    run: str
    door: Scheduler
    watch: Watch = lambda _node, _gate, _told: None
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    stopped: dict[str, tuple[Gate, Objection]] = field(default_factory=dict)
    _demotions: dict[str, Objection] = field(default_factory=dict, init=False)
    """The objections that the store has as a demotion already, word for word."""

    def climb(self, hosts: Sequence[Host], gates: Sequence[Gate], attempts: Mapping[str, Attempt]) -> list[Host]:
        """Lead ``hosts`` through ``gates``, each as far as it comes; those that came through all of them.

        A gate that has no attempt is left out: nobody is stopped there, and nobody has passed it.
        """
        for gate in gates:
            due = [host for host in hosts if gate.name in attempts and not self._counts_still(host, gate)]
            objections = attempts[gate.name](due) if due else {}
            for host in hosts:
                objection = objections.get(host.name) if gate.name in attempts else _LEFT_OUT
                if objection and objection.severity != "left_out":
                    self._stop(host, gate, objection)
                else:
                    self._pass(host, gate, tried=host in due, left_out=objection.why if objection else "")
            hosts = [host for host in hosts if host.name not in self.stopped]
        for host in hosts:
            self._clear(host)
        return list(hosts)

    def recognise(self, hosts: Sequence[Host], found: Mapping[str, Fingerprint]) -> dict[str, Objection]:
        """Hold what the nodes are against what was tested.

        One that takes jobs and is another machine is let out; one that no longer tells what it is, is only told of.
        """
        self.fingerprints |= found
        objections = ((host.name, self._recognised(host, found[host.name])) for host in hosts if host.name in found)
        return {node: objection for node, objection in objections if objection}

    def _recognised(self, host: Host, found: Fingerprint) -> Objection | None:
        before = self.store.last(host.name)
        admitted = before is not None and state_of(before) == "admitted"
        if demotion(before, found):
            made = self.store.move(host.name, self.run, functools.partial(_demoted, found))
            hindered = self.door.close([host], "provisioned", made.why).get(host.name, "") if admitted else ""
            return self._let_out(host, made.why, hindered) if admitted else None
        hidden = untold(before.fingerprint, found) if before and admitted else ""
        return Objection(f"it tells no more of its {hidden}", _ASK.format(host.name), "incomplete") if hidden else None

    def _let_out(self, host: Host, why: str, hindered: str) -> Objection:
        advice = "let its jobs end, and onboard it anew"
        if hindered:
            return Objection(f"{why}; and it cannot be closed to jobs: {hindered}", advice)
        self._demotions[host.name] = Objection(why, advice)
        return self._demotions[host.name]

    def unproved(self, host: Host) -> str:
        """What a node lacks that shall take jobs; empty where all is proved of the machine that it is now."""
        now, found = dt.datetime.now(dt.timezone.utc), self.fingerprints.get(host.name, {})
        return unproved(self.store.last(host.name), self._proofs(host), found, now)

    def close(self, hosts: Sequence[Host], why: str) -> dict[str, Objection]:
        """Keep jobs away from nodes that are not admitted; what hinders it, and whom somebody else keeps."""
        states = {host.name: state_of(self.store.last(host.name)) for host in hosts}
        outside = [host for host in hosts if states[host.name] != "admitted"]
        theirs = self.door.others(outside)
        hindered = close_each(self.door, [host for host in outside if host.name not in theirs], states, why)
        return {
            **{node: _incomplete(f"it cannot be closed to jobs: {why}") for node, why in hindered.items()},
            **{node: _incomplete(why) for node, why in theirs.items()},
        }

    def _counts_still(self, host: Host, gate: Gate) -> bool:
        found = self.fingerprints.get(host.name)
        now = dt.datetime.now(dt.timezone.utc)
        return bool(found) and counts_still(gate, self._proofs(host), found or {}, now)

    def _proofs(self, host: Host) -> tuple[GatePass, ...]:
        return proofs(self.store.history(host.name), self.store.passed(host.name))

    def _pass(self, host: Host, gate: Gate, *, tried: bool, left_out: str) -> None:
        fingerprint = self.fingerprints.get(host.name, {})
        told = left_out or ("passed" if tried else "passed before, and it is the same machine")
        why = f"{gate.name} was {left_out}" if left_out else gate.shows
        if earned(self.store.last(host.name), gate, why, fingerprint):
            self.store.move(host.name, self.run, functools.partial(_risen, gate, why, fingerprint))
        if tried and not left_out:
            self.store.note(host.name, gate.name, self.run, fingerprint)
        self.watch(host.name, gate, told)

    def _stop(self, host: Host, gate: Gate, objection: Objection) -> None:
        before = self.store.last(host.name)
        state, why = state_of(before), f"stopped at {gate.name}: {objection.why}"
        if self._demotions.get(host.name) is not objection:
            self.store.move(host.name, self.run, lambda now: step(now, state_of(now), why, cause="stopped"))
        self.stopped[host.name] = (gate, objection)
        self.watch(host.name, gate, f"stopped: {format_objection(objection)}")
        if state != "admitted":
            self.door.close([host], state, f"{gate.name}: {objection.why}")

    def _clear(self, host: Host) -> None:
        """What an admitted node was stopped at before is over."""
        before = self.store.last(host.name)
        if before and before.cause == "stopped":
            self.store.move(host.name, self.run, lambda now: step(now, state_of(now), "it is again as it was admitted"))


def _demoted(found: Fingerprint, now: HostEvent | None) -> StateChange:
    made = demotion(now, found)
    if made is None:
        raise InputError(f"{now.node if now else 'the node'} was changed by somebody else meanwhile; start again")
    return made


def _risen(gate: Gate, why: str, fingerprint: Fingerprint, now: HostEvent | None) -> StateChange:
    return earned(now, gate, why, fingerprint) or step(now, state_of(now), why, fingerprint)


def _incomplete(why: str) -> Objection:
    return Objection(why, severity="incomplete")


def format_objection(objection: Objection) -> str:
    """Return ``its GPUs cannot be counted; to do: …`` as one sentence."""
    return f"{objection.why}; to do: {objection.do}" if objection.do else objection.why


def conclusion(objections: Iterable[Objection]) -> Conclusion:
    """Return what a run comes to in which ``objections`` were raised; one that is ``left_out`` stops no node."""
    return gravest(_CONCLUSIONS.get(objection.severity, "ok") for objection in objections)
