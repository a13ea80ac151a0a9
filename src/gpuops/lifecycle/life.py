"""Life: nodes on their way through the gates; what they pass is kept, and who fails stays out with the reason."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuops.errors import InputError
from gpuops.inventory import Host
from gpuops.lifecycle.doors import Door
from gpuops.lifecycle.gates import Gate, counts_still, earned
from gpuops.lifecycle.states import demotion, state_of, step
from gpuops.store import Event, Fingerprint, Move, Store


@dataclass(frozen=True)
class Objection:
    """Why a node did not pass, what to do about it, and the exit code that follows."""

    why: str
    advice: str = ""
    exit_code: int = 1


Attempt = Callable[[Sequence[Host]], Mapping[str, Objection]]
"""Tries a gate on nodes; what is objected to, by node. Who is not named passed."""
Watch = Callable[[str, Gate, str], None]


@dataclass
class Life:
    """The nodes of one run. ``fingerprints`` are those that the run found; ``watch`` hears what becomes of each."""

    store: Store
    run: str
    door: Door
    watch: Watch = lambda _node, _gate, _told: None
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    stopped: dict[str, tuple[Gate, Objection]] = field(default_factory=dict)

    def climb(self, hosts: Sequence[Host], gates: Sequence[Gate], attempts: Mapping[str, Attempt]) -> list[Host]:
        """Lead ``hosts`` through ``gates``, each as far as it comes; those that came through all of them.

        A gate that has no attempt is left out: nobody is stopped there, and nobody has passed it.
        """
        for gate in gates:
            due = [host for host in hosts if gate.name in attempts and not self._counts_still(host, gate)]
            objections = attempts[gate.name](due) if due else {}
            for host in hosts:
                if host.name in objections:
                    self._stop(host, gate, objections[host.name])
                else:
                    self._pass(host, gate, tried=host in due, left_out=gate.name not in attempts)
            hosts = [host for host in hosts if host.name not in self.stopped]
        return list(hosts)

    def recognise(self, hosts: Sequence[Host], found: Mapping[str, Fingerprint]) -> dict[str, Objection]:
        """Hold what the nodes are against what was tested. One that takes jobs and is another machine is let out."""
        objections = {}
        self.fingerprints |= found
        for host in hosts:
            before = self.store.last(host.name)
            if host.name not in found or demotion(before, found[host.name]) is None:
                continue
            made = self.store.move(host.name, self.run, functools.partial(_demoted, found[host.name]))
            if state_of(before) == "admitted":
                hindered = self.door.close([host], "provisioned", made.why).get(host.name, "")
                why = f"{made.why}{f'; and it cannot be closed to jobs: {hindered}' if hindered else ''}"
                objections[host.name] = Objection(why, f"when its jobs have ended: gpuops onboard {host.name}")
        return objections

    def close(self, hosts: Sequence[Host], why: str) -> dict[str, Objection]:
        """Keep jobs away from nodes that are not admitted; what hinders it."""
        hindered: dict[str, str] = {}
        for host in hosts:
            state = state_of(self.store.last(host.name))
            if state != "admitted":
                hindered |= self.door.close([host], state, why)
        return {node: Objection(f"it cannot be closed to jobs: {told}", exit_code=3) for node, told in hindered.items()}

    def _counts_still(self, host: Host, gate: Gate) -> bool:
        found = self.fingerprints.get(host.name)
        now = dt.datetime.now(dt.timezone.utc)
        return bool(found) and counts_still(gate, self.store.passed(host.name), found or {}, now)

    def _pass(self, host: Host, gate: Gate, *, tried: bool, left_out: bool) -> None:
        fingerprint = self.fingerprints.get(host.name, {})
        told = "left out" if left_out else "passed" if tried else "passed before, and it is the same machine"
        why = f"{gate.name} was left out" if left_out else gate.shows
        if earned(self.store.last(host.name), gate, why, fingerprint):
            self.store.move(host.name, self.run, functools.partial(_risen, gate, why, fingerprint))
        if tried:
            self.store.note(host.name, gate.name, self.run, fingerprint)
        self.watch(host.name, gate, told)

    def _stop(self, host: Host, gate: Gate, objection: Objection) -> None:
        why = f"stopped at {gate.name}: {objection.why}"
        state = state_of(self.store.last(host.name))
        self.store.move(host.name, self.run, lambda now: step(now, state_of(now), why))
        self.stopped[host.name] = (gate, objection)
        self.watch(host.name, gate, f"stopped: {objection.why}")
        if state != "admitted":
            self.door.close([host], state, f"{gate.name}: {objection.why}")


def _demoted(found: Fingerprint, now: Event | None) -> Move:
    made = demotion(now, found)
    if made is None:
        raise InputError(f"{now.node if now else 'the node'} was changed by somebody else meanwhile; start again")
    return made


def _risen(gate: Gate, why: str, fingerprint: Fingerprint, now: Event | None) -> Move:
    return earned(now, gate, why, fingerprint) or step(now, state_of(now), why, fingerprint)


def exit_code(stopped: Mapping[str, tuple[Gate, Objection]]) -> int:
    """What a run ends with: 4 where a node is locked, else 1 where one failed, else 3 where one needs a person."""
    codes = {objection.exit_code for _, objection in stopped.values()}
    return next((code for code in (130, 4, 2, 1, 3) if code in codes), 0)
