"""The gates that a node must pass before it takes jobs: quick ones before long ones, one node before two; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuops.lifecycle.fingerprint import differences, unreadable_parts
from gpuops.lifecycle.states import LADDER, SERVICE_STATES, State, state_of, transition
from gpuops.store import Fingerprint, GatePass, HostEvent, StateChange

KEPT_DAYS = 30
"""How long a long test counts for the same machine; our own choice, about the time between maintenances."""
PAIR = "pair"
"""The gate at which a node is measured with another."""
GateState = Literal[
    "passed",
    "stopped",  # it failed and goes no further
    "left_out",  # the gate was not run: the node continues, but has proved nothing
    "kept",  # the same machine passed it before
]


@dataclass(frozen=True)
class Gate:
    """A gate: what passing it ``proves``, and the state that it grants.

    A pass of a ``remembered`` gate counts again for the same machine, because the gate takes long. An admitted node
    goes only through gates that are not disruptive. A gate that ``compares`` tells more about several nodes at once.
    """

    name: str
    proves: str
    grants_state: State = "new"
    remembered: bool = False
    is_disruptive: bool = True
    compares: bool = False


GATES = (
    Gate("facts", "it answers and reports what it is", is_disruptive=False),
    Gate("preflight", "the playbooks can be applied to it", is_disruptive=False),
    Gate("provision", "every step of the playbook took effect"),
    Gate("second-pass", "the playbook finds nothing left to change", "provisioned", is_disruptive=False),
    Gate("burn-in", "it computes without errors under full load", "burned_in", remembered=True, compares=True),
    Gate("validate", "every check passes, and its GPUs reach their bandwidth", remembered=True, compares=True),
    Gate(PAIR, "its all-reduce with another node is fast enough", "validated", remembered=True, compares=True),
    Gate("admit", "it takes jobs", "admitted"),
)


def gates_for(state: State) -> tuple[Gate, ...]:
    """Return the gates of a node in ``state``; one that may run jobs only has those that are not disruptive."""
    return tuple(gate for gate in GATES if state != "admitted" or not gate.is_disruptive)


def proofs(history: Sequence[HostEvent], passes: Iterable[GatePass]) -> tuple[GatePass, ...]:
    """Return the ``passes`` of a node since it was last serviced: servicing may not show in the fingerprint."""
    serviced = max((event.at for event in history if event.state in SERVICE_STATES), default=None)
    return tuple(gate_pass for gate_pass in passes if serviced is None or gate_pass.at > serviced)


def is_still_valid(gate: Gate, passes: Iterable[GatePass], fingerprint: Fingerprint, now: dt.datetime) -> bool:
    """Return True if this machine passed the gate recently enough for it to count.

    A machine with fewer readable parts than it had then is not known to be the same.
    """
    return gate.remembered and any(
        gate_pass.gate == gate.name
        and now - gate_pass.at < dt.timedelta(days=KEPT_DAYS)
        and gate_pass.fingerprint.keys() <= fingerprint.keys()
        and not differences(gate_pass.fingerprint, fingerprint)
        for gate_pass in passes
    )


def state_after(before: HostEvent | None, gate: Gate, why: str, fingerprint: Fingerprint) -> StateChange | None:
    """Return the state change of a node that passes ``gate``; None if it has that state or a later one already."""
    state = state_of(before)
    if before and state in LADDER and LADDER.index(state) >= LADDER.index(gate.grants_state):
        return None
    if state == "drained" and gate.grants_state == "new":
        return None
    return transition(before, gate.grants_state, why, fingerprint)


def missing_proofs(
    before: HostEvent | None, passes: Sequence[GatePass], fingerprint: Fingerprint, now: dt.datetime
) -> str:
    """Return the proofs that a node lacks for admission, as a sentence; an empty string if none is missing."""
    state = state_of(before)
    if state not in ("validated", "drained", "admitted"):
        return f"it is {state}{f' ({before.why})' if before else ''}"
    missing = [gate.name for gate in GATES if gate.remembered and not is_still_valid(gate, passes, fingerprint, now)]
    tested = before.fingerprint if before else {}
    unreadable = unreadable_parts(tested, fingerprint)
    changes = [*differences(tested, fingerprint), *([f"its {unreadable} can no longer be read"] if unreadable else [])]
    machine = f"this machine ({'; '.join(changes)})" if changes else "this machine"
    return f"not proved for {machine}: {', '.join(missing)}" if missing else ""
