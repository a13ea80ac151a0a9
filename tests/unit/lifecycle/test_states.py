import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.errors import InputError
from gpuops.lifecycle.states import LADDER, STATES, demotion, next_states, parse_state, state_of, transition
from gpuops.store import HostEvent

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
MACHINE = {"driver": ("580.95.05",), "GPU serials": ("165", "166")}


def event(state, **fingerprint):
    return HostEvent("gpu01", state, "because", NOW, "run", "alice", fingerprint or MACHINE)


@given(st.lists(st.sampled_from(STATES), max_size=30))
def test_a_node_only_ever_becomes_what_follows(wishes):
    now = event("new")
    for wish in wishes:
        before = state_of(now)
        try:
            made = transition(now, wish, "a wish")
        except InputError:
            assert wish not in (before, *next_states(before))
            continue
        assert wish in (before, *next_states(before))
        now = event(made.state)


@given(st.lists(st.sampled_from(STATES), max_size=30))
def test_no_node_is_admitted_without_having_been_validated_just_before(wishes):
    was, now = [], event("new")
    for wish in wishes:
        if wish in next_states(state_of(now)):
            was.append(state_of(now))
            now = event(wish)
            if wish == "admitted":
                assert was[-1] == "validated"


@given(st.sampled_from(STATES))
def test_from_everywhere_a_node_can_be_admitted_in_the_end(state):
    reached, edge = set(), {state}
    while edge:
        reached |= edge
        edge = {after for before in edge for after in next_states(before)} - reached
    assert "admitted" in reached


def test_the_ladder_is_climbed_a_step_at_a_time():
    for number, state in enumerate(LADDER):
        for higher in LADDER[number + 2 :]:
            with pytest.raises(InputError, match=f"gpu01 is {state} and cannot become {higher}; allowed next states: "):
                transition(event(state), higher, "too fast")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("admitted", {"drained", "provisioned", "repair", "retired"}),
        ("drained", {"provisioned", "validated", "repair", "retired"}),
        ("repair", {"new", "rma", "retired"}),
        ("rma", {"new", "repair", "retired"}),
        ("retired", {"new"}),
    ],
)
def test_off_the_ladder(state, expected):
    assert set(next_states(state)) == expected


def test_a_reason_may_change_and_the_machine_stays_known():
    assert transition(event("repair"), "repair", "Xid 79").fingerprint == MACHINE
    made = transition(event("new"), "provisioned", "it held", {"driver": ("590.1",)})
    assert made.fingerprint == {**MACHINE, "driver": ("590.1",)}


def test_a_state_is_understood_as_people_write_it():
    assert parse_state("Burned-In") == "burned_in"
    with pytest.raises(InputError, match='did you mean "retired"'):
        parse_state("retird")


@pytest.mark.parametrize("state", ["burned_in", "validated", "admitted"])
def test_another_machine_than_was_tested_is_provisioned_at_most(state):
    made = demotion(event(state), {**MACHINE, "GPU serials": ("165", "999")})
    assert made.state == "provisioned"
    assert made.why == "no longer the machine that was tested: GPU serials 166 → 999"
    assert made.fingerprint["GPU serials"] == ("165", "999")
    assert made.cause == "demoted"


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ("admitted", MACHINE),
        ("admitted", {"driver": ("580.95.05",)}),
        ("admitted", {**MACHINE, "VBIOS": ("96.00",)}),
        ("admitted", {}),
        ("provisioned", {**MACHINE, "driver": ("590.1",)}),
        ("repair", {**MACHINE, "driver": ("590.1",)}),
    ],
)
def test_what_is_the_same_or_cannot_be_told_demotes_nobody(state, found):
    assert demotion(event(state), found) is None


def test_nobody_is_demoted_of_whom_nothing_is_known():
    assert demotion(None, MACHINE) is None
