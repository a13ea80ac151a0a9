"""States: what a node can be, and what it can become next; pure."""

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
"""From a node that answers to one that takes jobs; each is earned by the gates before it."""
_UP: Mapping[State, State] = dict(itertools.pairwise(LADDER))
HANDS: tuple[State, ...] = ("repair", "rma", "retired")
"""In which of them hands may be in the machine, so that what it proved before proves nothing of it afterwards."""
_AWAY: tuple[State, ...] = ("repair", "retired")
"""What any node can become, whatever it was."""
_ASIDE: Mapping[State, tuple[State, ...]] = {
    "admitted": ("drained",),
    "drained": ("provisioned", "validated"),
    "repair": ("new", "rma"),
    "rma": ("new",),
    "retired": ("new",),
}


def followers(state: State) -> tuple[State, ...]:
    """What a node that is ``state`` can become, in the order of `STATES`.

    Up the ladder a step at a time; down it to ``provisioned`` when the machine changed; from repair and from the vendor
    it comes back as a new one.
    """
    down: tuple[State, ...] = ("provisioned",) if state in ("burned_in", "validated", "admitted") else ()
    up = (_UP[state],) if state in _UP else ()
    found = {*up, *down, *_ASIDE.get(state, ()), *(_AWAY if state != "retired" else ())} - {state}
    return tuple(s for s in STATES if s in found)


def parse_state(word: str) -> State:
    """The state that a person names; ``burned-in`` is meant as well."""
    state = word.lower().replace("-", "_")
    if state not in STATES:
        raise InputError(f'no state called "{word}"{did_you_mean(state, STATES) or "; states: " + ", ".join(STATES)}')
    return state


def state_of(event: HostEvent | None) -> State:
    """What a node is; one of which nothing is known is new."""
    return cast("State", event.state) if event else "new"


def step(
    before: HostEvent | None, to: State, why: str, fingerprint: Fingerprint | None = None, cause: Cause = ""
) -> StateChange:
    """The move of a node to the state ``to``; `InputError` where that does not follow from what it is.

    A node may stay what it is, for another reason. Without a ``fingerprint`` the one that is known stays.
    """
    now = state_of(before)
    if to != now and to not in followers(now):
        name = before.node if before else "a node of which nothing is known"
        raise InputError(f"{name} is {now}, and from there it becomes {' or '.join(followers(now))}, not {to}")
    known = before.fingerprint if before else {}
    return StateChange(to, why, known if fingerprint is None else {**known, **fingerprint}, cause)


def demotion(before: HostEvent | None, found: Fingerprint) -> StateChange | None:
    """What another fingerprint makes of a node that passed its tests with the one before; None where it is the same."""
    changed = differences(before.fingerprint, found) if before else []
    if not changed or state_of(before) not in ("burned_in", "validated", "admitted"):
        return None
    why = f"no longer the machine that was tested: {'; '.join(changed)}"
    return step(before, "provisioned", why, found, "demoted")
