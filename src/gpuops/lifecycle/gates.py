"""Gates: what a node must pass before it takes jobs, quick proofs before long ones and one node before two; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuops.lifecycle.fingerprint import differences, untold
from gpuops.lifecycle.states import HANDS, LADDER, State, state_of, step
from gpuops.store import Fingerprint, GatePass, HostEvent, StateChange

KEPT_DAYS = 30
"""How long a test that took long counts for the same machine; our own choice: about the time between maintenances."""


@dataclass(frozen=True)
class Gate:
    """One gate: what passing it shows, and the state that it ``earns``.

    One that is ``kept`` takes long, so that it counts for the same machine again. An admitted node is asked only those
    that ``disturb`` nothing.
    """

    name: str
    shows: str
    earns: State = "new"
    kept: bool = False
    disturbs: bool = True


GATES = (
    Gate("facts", "it answers and tells what it is", disturbs=False),
    Gate("preflight", "it can become what the playbooks make of it", disturbs=False),
    Gate("provision", "every step of the playbook held"),
    Gate("second-pass", "the playbook finds nothing more to change", "provisioned", disturbs=False),
    Gate("burn-in", "it computes without errors under full load", "burned_in", kept=True),
    Gate("validate", "every check passes, and its GPUs reach their bandwidth", kept=True),
    Gate("pair", "it is as fast with an admitted neighbour", "validated", kept=True),
    Gate("admit", "it takes jobs", "admitted"),
)


def gates_for(state: State) -> tuple[Gate, ...]:
    """The gates that a node goes through: of one that may run jobs only those that disturb nothing."""
    return tuple(gate for gate in GATES if state != "admitted" or not gate.disturbs)


def proofs(history: Sequence[HostEvent], passed: Iterable[GatePass]) -> tuple[GatePass, ...]:
    """What a node passed since hands were last in it: what they changed need not show in a fingerprint."""
    mended = max((event.at for event in history if event.state in HANDS), default=None)
    return tuple(known for known in passed if mended is None or known.at > mended)


def counts_still(gate: Gate, passed: Iterable[GatePass], fingerprint: Fingerprint, now: dt.datetime) -> bool:
    """The gate was passed by this very machine, and not too long ago.

    A machine that tells less of itself than it did then is not known to be the same.
    """
    return gate.kept and any(
        known.gate == gate.name
        and now - known.at < dt.timedelta(days=KEPT_DAYS)
        and known.fingerprint.keys() <= fingerprint.keys()
        and not differences(known.fingerprint, fingerprint)
        for known in passed
    )


def earned(before: HostEvent | None, gate: Gate, why: str, fingerprint: Fingerprint) -> StateChange | None:
    """What passing the gate makes of a node; None where it is that, or more, already."""
    now = state_of(before)
    if before and now in LADDER and LADDER.index(now) >= LADDER.index(gate.earns):
        return None
    if now == "drained" and gate.earns == "new":
        return None
    return step(before, gate.earns, why, fingerprint)


def unproved(before: HostEvent | None, passed: Sequence[GatePass], found: Fingerprint, now: dt.datetime) -> str:
    """What is missing of a node that shall take jobs; empty where it may be admitted."""
    state = state_of(before)
    if state not in ("validated", "drained", "admitted"):
        return f"it is {state}{f' ({before.why})' if before else ''}"
    missing = [gate.name for gate in GATES if gate.kept and not counts_still(gate, passed, found, now)]
    known = before.fingerprint if before else {}
    hidden = untold(known, found)
    other = "; ".join([*differences(known, found), *([f"it tells no more of its {hidden}"] if hidden else [])])
    machine = f"this machine ({other})" if other else "this machine"
    return f"not proved for {machine}: {', '.join(missing)}" if missing else ""
