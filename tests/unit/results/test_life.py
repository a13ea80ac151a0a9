"""Conclusions and JSON documents of life-cycle results."""

import datetime as dt
import json

import pytest

from gpuops.errors import ConnectError, LockedError
from gpuops.lifecycle.gates import GATES
from gpuops.lifecycle.states import STATES
from gpuops.reasons import EXIT_CODES, Excluded, Objection, excluded_by
from gpuops.results.life import GateResult, History, NodeOnboarding, Onboarding, Transition
from gpuops.secret import Secret
from gpuops.store import GatePass, HostEvent

AT = dt.datetime(2026, 3, 1, 10, 15, tzinfo=dt.timezone.utc)
FAILED, INCOMPLETE = Objection("no", "look"), Objection("nobody knows", severity="incomplete")
LOCKED = Objection("alice works on it", severity="locked")
LEFT_OUT = Objection("left out: nobody is there", severity="left_out")
UNREACHABLE = excluded_by("gpu09", ConnectError("gpu09", "timed out", "timeout"))
BUSY_ELSEWHERE = excluded_by("gpu09", LockedError("bob works on it"))
EVENT = HostEvent("gpu01", "drained", "fan swap", AT, "run-1", "alice", {"driver": ("580.95.05",)}, "by_hand")
EVENT_DOCUMENT = {
    "node": "gpu01",
    "state": "drained",
    "why": "fan swap",
    "at": "2026-03-01T10:15:00+00:00",
    "run": "run-1",
    "who": "alice",
    "fingerprint": {"driver": ["580.95.05"]},
    "cause": "by_hand",
    "checks": [],
}


def transition(*objections, **more):
    return Transition({}, {f"gpu{number:02}": objection for number, objection in enumerate(objections)}, **more)


def onboarding(*objections, **more):
    nodes = {}
    for number, objection in enumerate(objections):
        stopped_at = "pair" if objection else None
        nodes[f"gpu{number:02}"] = NodeOnboarding((), stopped_at, objection, "validated")
    return Onboarding(nodes, **more)


@pytest.mark.parametrize("make", [transition, onboarding])
@pytest.mark.parametrize(
    ("objections", "more", "conclusion"),
    [
        ([], {}, "ok"),
        ([LEFT_OUT], {}, "ok"),
        ([INCOMPLETE, LEFT_OUT], {}, "incomplete"),
        ([INCOMPLETE, FAILED], {}, "failed"),
        ([FAILED, LOCKED, INCOMPLETE], {}, "locked"),
        ([FAILED, LOCKED], {"interrupted": True}, "interrupted"),
    ],
)
def test_conclusion_is_the_most_severe_objection(make, objections, more, conclusion):
    assert make(*objections, **more).conclusion() == conclusion
    assert conclusion in EXIT_CODES


@pytest.mark.parametrize(
    ("objections", "excluded", "conclusion"),
    [
        ([], UNREACHABLE, "incomplete"),
        ([FAILED], UNREACHABLE, "failed"),
        ([FAILED], BUSY_ELSEWHERE, "locked"),
        ([LOCKED], Excluded("gpu09", "interrupted", "interrupted"), "interrupted"),
    ],
)
def test_excluded_nodes_count_in_the_conclusion_of_a_transition(objections, excluded, conclusion):
    assert transition(*objections, excluded={"gpu09": excluded}).conclusion() == conclusion


def test_onboarding_document_has_the_kind_of_an_exclusion():
    result = onboarding(FAILED, Objection("timed out", severity="incomplete", excluded=UNREACHABLE))
    kind = {"kind": "unreachable", "why": "timed out", "unreachable": "timeout"}
    document = result.to_document()
    assert (result.conclusion(), document["excluded"]) == ("failed", {"gpu01": kind})
    assert document["nodes"]["gpu01"]["objection"]["excluded"] == kind


@pytest.mark.parametrize("make", [transition, onboarding])
@pytest.mark.parametrize(
    ("objections", "conclusion"), [([FAILED], "ok"), ([FAILED, INCOMPLETE], "incomplete"), ([LOCKED], "locked")]
)
def test_failures_do_not_count_when_nothing_may_fail(make, objections, conclusion):
    assert make(*objections).conclusion(fail_on="never") == conclusion
    assert make(FAILED).conclusion(fail_on="warn") == "failed"


def test_jobs_that_still_run_fail_no_transition():
    assert Transition({"gpu01": EVENT}, busy={"gpu01": "draining in Slurm"}).conclusion() == "ok"


def test_transition_document_has_every_part_by_node():
    result = Transition(
        {"gpu01": EVENT}, {"gpu02": INCOMPLETE}, {"gpu01": "draining"}, {"gpu09": UNREACHABLE}, seconds=1.23456
    )
    assert result.to_document() == {
        "schema": "gpuops.transition/1",
        "seconds": 1.235,
        "interrupted": False,
        "events": {"gpu01": EVENT_DOCUMENT},
        "objections": {"gpu02": {"why": "nobody knows", "do": "", "severity": "incomplete"}},
        "busy": {"gpu01": "draining"},
        "excluded": {"gpu09": {"kind": "unreachable", "why": "timed out", "unreachable": "timeout"}},
    }


def test_onboarding_document_has_the_gates_of_every_node():
    passed = NodeOnboarding((GateResult("admit", "passed", "passed"),), None, None, "admitted")
    stopped = NodeOnboarding((GateResult("pair", "stopped", "stopped: no; to do: look"),), "pair", FAILED, "burned_in")
    result = Onboarding({"gpu01": passed, "gpu02": stopped}, interrupted=True, seconds=60.0)
    assert result.objections == {"gpu02": FAILED}
    assert result.to_document() == {
        "schema": "gpuops.onboarding/1",
        "seconds": 60.0,
        "interrupted": True,
        "nodes": {
            "gpu01": {
                "gates": [{"gate": "admit", "state": "passed", "text": "passed"}],
                "stopped_at": None,
                "objection": None,
                "state": "admitted",
                "interrupted_at": None,
                "doing": "",
            },
            "gpu02": {
                "gates": [{"gate": "pair", "state": "stopped", "text": "stopped: no; to do: look"}],
                "stopped_at": "pair",
                "objection": {"why": "no", "do": "look", "severity": "failed"},
                "state": "burned_in",
                "interrupted_at": None,
                "doing": "",
            },
        },
        "excluded": {},
    }


def test_history_document_has_the_keys_of_the_latest_event():
    first = HostEvent("gpu01", "new", "it answers", AT, "run-0", "bob")
    history = History("gpu01", (first, EVENT), (GatePass("burn-in", AT, {"driver": ("580.95.05",)}),))
    document = history.to_document()
    assert {key: document[key] for key in EVENT_DOCUMENT} == EVENT_DOCUMENT
    assert document["schema"] == "gpuops.history/1"
    assert document["gates"] == [{"gate": "burn-in", "at": "2026-03-01T10:15:00+00:00"}]
    assert [event["state"] for event in document["history"]] == ["new", "drained"]
    assert set(document) == {*EVENT_DOCUMENT, "schema", "gates", "history"}


def test_history_has_the_present_state_and_what_may_follow():
    history = History("gpu01", (EVENT,))
    assert (history.state, history.conclusion(), history.excluded) == ("drained", "ok", {})
    assert history.next_states == ("provisioned", "validated", "repair", "retired")
    assert set(history.next_states) < set(STATES)


@pytest.mark.parametrize("result", [transition(FAILED), onboarding(FAILED, None), History("gpu01", (EVENT,))])
def test_json_is_the_document(result):
    assert json.loads(result.to_json()) == result.to_document()
    assert result.to_json().startswith('{\n "schema": "gpuops.')
    assert result.to_json(indent=4).startswith('{\n    "schema"')


def test_secrets_are_masked_in_every_document():
    Secret("hunter2hunter2")
    gates = (GateResult(GATES[0].name, "stopped", "stopped: hunter2hunter2"),)
    excluded = {"gpu09": Excluded("gpu09", "unreachable", "hunter2hunter2")}
    leaking = Objection("sudo said hunter2hunter2", "try hunter2hunter2 again", excluded=excluded["gpu09"])
    event = HostEvent("gpu01", "new", "hunter2hunter2", AT, "run", "bob")
    for result in (
        Transition({"gpu01": event}, {"gpu02": leaking}, {"gpu01": "hunter2hunter2"}, excluded),
        Onboarding({"gpu02": NodeOnboarding(gates, "facts", leaking, "new")}),
        History("gpu01", (event,)),
    ):
        assert "hunter2" not in result.to_json()
