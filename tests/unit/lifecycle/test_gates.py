import dataclasses
import datetime as dt

import pytest

from gpuops.lifecycle.gates import GATES, KEPT_DAYS, gates_for, is_still_valid, missing_proofs, proofs, state_after
from gpuops.lifecycle.states import LADDER, STATES
from gpuops.store import GatePass, HostEvent

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.timezone.utc)
MACHINE = {"driver": ("580.95.05",)}
BY_NAME = {gate.name: gate for gate in GATES}


def event(state):
    return HostEvent("gpu01", state, "because", NOW, "run", "alice", MACHINE)


def passed(gate, days=1, fingerprint=MACHINE):
    return GatePass(gate, NOW - dt.timedelta(days=days), fingerprint)


ALL = [passed(gate.name) for gate in GATES if gate.remembered]


def test_the_gates_earn_the_ladder_from_its_foot_to_its_top():
    earned = list(dict.fromkeys(gate.grants_state for gate in GATES if gate.grants_state != "new"))
    assert ["new", *earned] == list(LADDER)


def test_an_admitted_node_is_asked_only_what_disturbs_nothing():
    assert [gate.name for gate in gates_for("admitted")] == ["facts", "preflight", "second-pass"]
    assert all(gates_for(state) == GATES for state in STATES if state != "admitted")


@pytest.mark.parametrize(
    ("known", "counts"),
    [
        (passed("burn-in"), True),
        (passed("burn-in", days=KEPT_DAYS), False),
        (passed("burn-in", fingerprint={"driver": ("590.1",)}), False),
        (passed("burn-in", fingerprint={**MACHINE, "GPU serials": ("165",)}), False),
        (passed("pair"), False),
    ],
)
def test_a_long_test_counts_again_for_the_same_machine_and_not_for_ever(known, counts):
    assert is_still_valid(BY_NAME["burn-in"], [known], MACHINE, NOW) is counts


def test_a_quick_gate_is_always_tried_again():
    assert not is_still_valid(BY_NAME["second-pass"], [passed("second-pass", days=0)], MACHINE, NOW)


@pytest.mark.parametrize(
    ("state", "gate", "becomes"),
    [
        ("new", "second-pass", "provisioned"),
        ("repair", "facts", "new"),
        ("drained", "facts", None),
        ("drained", "second-pass", "provisioned"),
        ("validated", "burn-in", None),
        ("admitted", "second-pass", None),
        ("validated", "admit", "admitted"),
    ],
)
def test_passing_a_gate_raises_and_never_lowers(state, gate, becomes):
    move = state_after(event(state), BY_NAME[gate], "why", MACHINE)
    assert (move.state if move else None) == becomes


def test_a_node_of_which_nothing_is_known_becomes_new():
    assert state_after(None, BY_NAME["facts"], "it answers", MACHINE).state == "new"


def test_a_drained_node_is_admitted_again_while_its_tests_count():
    assert missing_proofs(event("drained"), ALL, MACHINE, NOW) == ""
    assert missing_proofs(event("drained"), ALL[1:], MACHINE, NOW) == "not proved for this machine: burn-in"


def test_a_machine_that_tells_nothing_of_itself_is_not_admitted():
    why = "not proved for this machine (its driver can no longer be read): burn-in, validate, pair"
    assert missing_proofs(event("drained"), ALL, {}, NOW) == why


def test_what_became_of_a_drained_machine_is_reported():
    why = "not proved for this machine (driver 580.95.05 → 590.1): burn-in, validate, pair"
    assert missing_proofs(event("drained"), ALL, {"driver": ("590.1",)}, NOW) == why


@pytest.mark.parametrize("state", ["new", "provisioned", "burned_in", "repair", "rma", "retired"])
def test_no_other_state_is_admitted_by_hand(state):
    assert missing_proofs(event(state), ALL, MACHINE, NOW) == f"it is {state} (because)"


def test_a_node_of_which_nothing_is_known_is_new():
    assert missing_proofs(None, [], MACHINE, NOW) == "it is new"


@pytest.mark.parametrize(("state", "count"), [("drained", 2), ("repair", 1), ("rma", 1), ("retired", 1)])
def test_where_hands_were_in_a_machine_it_has_proved_nothing_before(state, count):
    opened = dataclasses.replace(event(state), at=NOW - dt.timedelta(days=2))
    known = [passed("burn-in", days=3), passed("pair", days=1)]
    assert proofs([event("new"), opened, event("new")], known) == tuple(known[-count:])
