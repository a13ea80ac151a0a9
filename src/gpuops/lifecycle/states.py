"""The states of a node, and the transitions between them; pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Literal, cast, get_args

from gpuops.errors import InputError, did_you_mean
from gpuops.lifecycle.fingerprint import differences
from gpuops.store import Cause, Fingerprint, HostEvent, StateChange

State = Literal[
    "new", "provisioned", "burned_in", "validated", "admitted", "drained", "repair", "rma", "retired"
]  # fmt: skip
STATES: tuple[State, ...] = get_args(State)
LADDER: tuple[State, ...] = ("new", "provisioned", "burned_in", "validated", "admitted")
"""From a node that answers to one that takes jobs; the gates before each state grant it."""
_UP: Mapping[State, State] = dict(itertools.pairwise(LADDER))
SERVICE_STATES: tuple[State, ...] = ("repair", "rma", "retired")
"""States in which someone may be servicing the machine, so that earlier proofs no longer count."""
_FROM_ANYWHERE: tuple[State, ...] = ("repair", "retired")
_ASIDE: Mapping[State, tuple[State, ...]] = {
    "admitted": ("drained",),
    "drained": ("provisioned", "validated"),
    "repair": ("new", "rma"),
    "rma": ("new",),
    "retired": ("new",),
}


def next_states(state: State) -> tuple[State, ...]:
    """Return the states that can follow ``state``, in the order of `STATES`.

    A node moves up the ladder one state at a time, and down to ``provisioned`` if the machine changed. From repair and
    from the vendor it comes back as a new one.
    """
    down: tuple[State, ...] = ("provisioned",) if state in ("burned_in", "validated", "admitted") else ()
    up = (_UP[state],) if state in _UP else ()
    reachable = {*up, *down, *_ASIDE.get(state, ()), *(_FROM_ANYWHERE if state != "retired" else ())} - {state}
    return tuple(s for s in STATES if s in reachable)


def parse_state(word: str) -> State:
    """Return the state that ``word`` names, such as ``burned-in``; raise `InputError` if it is not a state."""
    state = word.lower().replace("-", "_")
    if state not in STATES:
        raise InputError(f'no state named "{word}"{did_you_mean(state, STATES) or "; states: " + ", ".join(STATES)}')
    return state


def state_of(event: HostEvent | None) -> State:
    """Return the state of a node after its latest ``event``; a node without one is new."""
    return cast("State", event.state) if event else "new"


def transition(
    before: HostEvent | None, to: State, why: str, fingerprint: Fingerprint | None = None, cause: Cause = ""
) -> StateChange:
    """Return the change of a node to the state ``to``; raise `InputError` if that state cannot follow the current one.

    A node may keep its state for another reason. Its known fingerprint stays, updated by ``fingerprint``.
    """
    state = state_of(before)
    if to != state and to not in next_states(state):
        name = before.node if before else "a node without a history"
        raise InputError(
            f"{name} is {state} and cannot become {to}; allowed next states: {', '.join(next_states(state))}"
        )
    known_parts = before.fingerprint if before else {}
    return StateChange(to, why, {**known_parts, **(fingerprint or {})}, cause)


def demotion(before: HostEvent | None, fingerprint: Fingerprint) -> StateChange | None:
    """Return the change of a node that was tested with another ``fingerprint``; None if it is the same machine."""
    changed = differences(before.fingerprint, fingerprint) if before else []
    if not changed or state_of(before) not in ("burned_in", "validated", "admitted"):
        return None
    why = f"no longer the machine that was tested: {'; '.join(changed)}"
    return transition(before, "provisioned", why, fingerprint, "demoted")
