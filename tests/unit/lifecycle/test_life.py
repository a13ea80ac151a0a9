import pytest

from gpuops.lifecycle.gates import GATES, gates_for
from gpuops.lifecycle.life import NodeLifecycle, conclusion, format_objection
from gpuops.reasons import Objection
from gpuops.store import ClosingCheck, StateChange

MACHINE = {"driver": ("580.95.05",), "GPU serials": ("165",)}
OTHER = {**MACHINE, "driver": ("590.1",)}
NO = Objection("no")
LONG = ["burn-in", "validate", "pair"]


def outcome_of(life):
    return conclusion(objection for _, objection in life.stopped.values())


class FakeScheduler:
    def __init__(self):
        self.drained = {}
        self.broken = {}
        self.kept = {}

    def drain(self, hosts, state, why):
        self.drained |= {host.name: f"{state} {why}" for host in hosts if host.name not in self.broken}
        return {host.name: self.broken[host.name] for host in hosts if host.name in self.broken}

    def drained_by_others(self, hosts):
        return {host.name: self.kept[host.name] for host in hosts if host.name in self.kept}


@pytest.fixture
def scheduler():
    return FakeScheduler()


@pytest.fixture
def advance(store, scheduler, a_host):
    """Leads nodes through all gates; those named object, the fingerprint is given. Tells which gates were tried."""

    def advance(*names, machine=MACHINE, without=(), why=NO, **objections):
        tried = []
        life = NodeLifecycle(store, store.begin("onboard", who="ops"), scheduler)
        hosts = [a_host(name) for name in names]

        def facts(some):
            return life.compare_fingerprints(some, dict.fromkeys(names, machine))

        def attempt(name):
            def try_it(some):
                tried.append((name, [host.name for host in some]))
                return dict.fromkeys(objections.get(name.replace("-", "_"), ()), why)

            return facts if name == "facts" else try_it

        state = store.latest_by_node().get(names[0])
        through = life.advance(
            hosts,
            gates_for(state.state if state else "new"),
            {g.name: attempt(g.name) for g in GATES if g.name not in without},
        )
        return life, [host.name for host in through], dict(tried)

    return advance


def test_who_passes_every_gate_is_admitted(advance, store):
    life, through, tried = advance("gpu01", "gpu02")
    assert through == ["gpu01", "gpu02"]
    assert list(tried) == [gate.name for gate in GATES[1:]]
    assert [event.state for event in store.history("gpu01")] == [
        "new", "provisioned", "burned_in", "validated", "admitted",
    ]  # fmt: skip
    assert store.latest("gpu01").fingerprint == MACHINE
    assert outcome_of(life) == "ok"


def test_who_fails_stops_there_and_the_others_go_on(advance, store, scheduler):
    life, through, tried = advance("gpu01", "gpu02", burn_in=["gpu01"])
    assert through == ["gpu02"]
    assert tried["validate"] == ["gpu02"]
    assert (store.latest("gpu01").state, store.latest("gpu01").why) == ("provisioned", "stopped at burn-in: no")
    assert store.latest("gpu01").cause == "stopped"
    assert scheduler.drained["gpu01"] == "provisioned burn-in: no"
    assert "gpu02" not in scheduler.drained
    assert outcome_of(life) == "failed"


def test_next_time_it_goes_on_from_there(advance, store):
    advance("gpu01", pair=["gpu01"])
    _, through, tried = advance("gpu01")
    assert through == ["gpu01"]
    assert not {"burn-in", "validate"} & set(tried)
    assert tried["pair"] == ["gpu01"]
    assert store.latest("gpu01").state == "admitted"


def test_a_gate_that_is_left_out_stops_no_node_and_proves_nothing(advance, store):
    _, through, tried = advance("gpu01", without=["burn-in"])
    assert through == ["gpu01"]
    assert "burn-in" not in tried
    assert "burn-in" not in {gate.gate for gate in store.gates_passed("gpu01")}
    assert [e.why for e in store.history("gpu01") if e.state == "burned_in"] == ["burn-in was left out"]


def test_a_gate_that_nobody_could_try_stops_no_node_and_proves_nothing(advance, store):
    alone = Objection("left out: nobody is there", severity="left_out")
    life, through, _ = advance("gpu01", pair=["gpu01"], why=alone)
    assert (through, life.stopped) == (["gpu01"], {})
    assert "pair" not in {gate.gate for gate in store.gates_passed("gpu01")}
    assert [e.why for e in store.history("gpu01") if e.state == "validated"] == ["pair was left out: nobody is there"]
    _, _, tried = advance("gpu01")
    assert "pair" not in tried  # it takes jobs, and is not disturbed
    store.record_transition("gpu01", life.run, lambda _: StateChange("drained", "x", MACHINE))
    _, _, tried = advance("gpu01")
    assert tried["pair"] == ["gpu01"]
    assert "burn-in" not in tried


def test_after_a_repair_the_long_tests_begin_anew(advance, store):
    life, _, _ = advance("gpu01")
    store.record_transition("gpu01", life.run, lambda _: StateChange("repair", "PSU 2", MACHINE))
    _, _, tried = advance("gpu01")
    assert set(LONG) <= set(tried)


def test_an_admitted_node_that_tells_no_more_what_it_is_is_told_of_and_keeps_its_jobs(advance, store, scheduler):
    advance("gpu01")
    life, through, _ = advance("gpu01", machine={"driver": MACHINE["driver"]})
    assert through == []
    assert "its GPU serials can no longer be read" in life.stopped["gpu01"][1].why
    assert (store.latest("gpu01").state, scheduler.drained, outcome_of(life)) == ("admitted", {}, "incomplete")


def test_what_an_admitted_node_was_stopped_at_is_over_when_it_passes_again(advance, store):
    advance("gpu01")
    advance("gpu01", second_pass=["gpu01"])
    assert store.latest("gpu01").why == "stopped at second-pass: no"
    advance("gpu01")
    assert (store.latest("gpu01").state, store.latest("gpu01").why) == (
        "admitted",
        "it passed the gate that had stopped it",
    )
    assert store.latest("gpu01").cause == ""


def test_a_reason_that_a_person_gave_is_kept_however_it_is_worded(advance, store):
    life, _, _ = advance("gpu01")
    by_hand = StateChange("admitted", "stopped at noon, and well again", MACHINE, "by_hand")
    store.record_transition("gpu01", life.run, lambda _: by_hand)
    advance("gpu01")
    assert store.latest("gpu01").why == by_hand.why


def test_another_machine_starts_its_long_tests_anew(advance):
    advance("gpu01", pair=["gpu01"])
    _, _, tried = advance("gpu01", machine=OTHER)
    assert all(tried[name] == ["gpu01"] for name in LONG)


def test_an_admitted_node_is_not_disturbed(advance, store, scheduler):
    advance("gpu01")
    before = len(store.history("gpu01"))
    _, through, tried = advance("gpu01")
    assert through == ["gpu01"]
    assert list(tried) == ["preflight", "second-pass"]
    assert len(store.history("gpu01")) == before
    assert scheduler.drained == {}


def test_an_admitted_node_that_drifted_is_told_and_keeps_its_jobs(advance, store, scheduler):
    advance("gpu01")
    life, _, _ = advance("gpu01", second_pass=["gpu01"])
    assert store.latest("gpu01").state == "admitted"
    assert scheduler.drained == {}
    assert outcome_of(life) == "failed"


def test_an_admitted_node_that_is_another_machine_is_let_out(advance, store, scheduler):
    advance("gpu01")
    life, through, tried = advance("gpu01", machine=OTHER)
    assert (through, tried) == ([], {})
    assert store.latest("gpu01").state == "provisioned"
    assert "driver 580.95.05 → 590.1" in store.latest("gpu01").why
    assert scheduler.drained["gpu01"].startswith("provisioned ")
    gate, objection = life.stopped["gpu01"]
    assert (gate.name, objection.do) == ("facts", "wait for its jobs to end, and onboard it again")
    assert [(event.state, event.cause) for event in store.history("gpu01")][-2:] == [
        ("admitted", ""), ("provisioned", "demoted"),
    ]  # fmt: skip


def test_what_the_playbook_made_another_machine_has_its_tests_before_it(store, scheduler, a_host):
    life, host = NodeLifecycle(store, store.begin("x", who="ops"), scheduler), a_host("gpu01")
    store.record_transition("gpu01", life.run, lambda _: StateChange("validated", "x", MACHINE))
    assert life.compare_fingerprints([host], {"gpu01": OTHER}) == {}
    assert store.latest("gpu01").state == "provisioned"
    assert store.latest("gpu01").fingerprint == OTHER


def test_that_it_cannot_be_let_out_is_told_too(advance, store, scheduler):
    advance("gpu01")
    scheduler.broken["gpu01"] = "scontrol says: no"
    life, _, _ = advance("gpu01", machine=OTHER)
    assert "it could not be drained: scontrol says: no" in life.stopped["gpu01"][1].why
    assert store.latest("gpu01").why == f"stopped at facts: {life.stopped['gpu01'][1].why}"
    assert store.latest("gpu01").cause == "stopped"


def test_a_node_that_stops_after_its_demotion_in_the_same_run_is_recorded_as_stopped(store, scheduler, a_host):
    life, host = NodeLifecycle(store, store.begin("x", who="ops"), scheduler), a_host("gpu01")
    store.record_transition("gpu01", life.run, lambda _: StateChange("validated", "x", MACHINE))
    second_pass = {"second-pass": lambda hosts: {**life.compare_fingerprints(hosts, {"gpu01": OTHER}), "gpu01": NO}}
    life.advance([host], [gate for gate in GATES if gate.name == "second-pass"], second_pass)
    assert [event.cause for event in store.history("gpu01")] == ["", "demoted", "stopped"]


def test_only_nodes_that_take_no_jobs_are_closed(store, scheduler, a_host):
    life = NodeLifecycle(store, store.begin("x", who="ops"), scheduler)
    store.record_transition("gpu02", life.run, lambda _: StateChange("admitted", "x"))
    scheduler.broken["gpu03"] = "scontrol says: no"
    scheduler.kept = {"gpu02": "drained by alice", "gpu04": "drained by alice"}
    hindered = life.drain([a_host(name) for name in ("gpu01", "gpu02", "gpu03", "gpu04")], "onboarding")
    assert scheduler.drained == {"gpu01": "new onboarding"}
    assert {node: (objection.why, objection.severity) for node, objection in hindered.items()} == {
        "gpu03": ("cannot drain it: scontrol says: no", "incomplete"),
        "gpu04": ("drained by alice", "incomplete"),
    }


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ((), "ok"),
        (("left_out",), "ok"),
        (("incomplete", "left_out"), "incomplete"),
        (("incomplete", "failed"), "failed"),
        (("failed", "incomplete", "locked"), "locked"),
    ],
)
def test_a_run_comes_to_what_its_gravest_objection_says(severities, expected):
    assert conclusion(Objection("x", severity=severity) for severity in severities) == expected


def test_each_result_of_a_gate_has_its_state(store, scheduler, a_host):
    results = []

    def hear(node, gate, state, text):
        results.append((node, gate.name, state, text))

    def attempts(objections):
        life.fingerprints["gpu01"] = MACHINE
        return {name: lambda _: objections for name in ("burn-in", "validate")}

    life, hosts = NodeLifecycle(store, store.begin("x", who="ops"), scheduler, hear), [a_host("gpu01")]
    store.record_transition("gpu01", life.run, lambda _: StateChange("provisioned", "x", MACHINE))
    gates = [gate for gate in GATES if gate.name in LONG]
    life.advance(hosts, gates[:1], attempts({}))
    life.advance(hosts, gates, attempts({"gpu01": Objection("no", "look")}))
    life.stopped.clear()
    alone = Objection("left out: nobody is there", severity="left_out")
    life.advance(hosts, gates[1:], attempts({"gpu01": alone}))
    assert results == [
        ("gpu01", "burn-in", "passed", "passed"),
        ("gpu01", "burn-in", "kept", "passed before, on the same machine"),
        ("gpu01", "validate", "stopped", "stopped: no; to do: look"),
        ("gpu01", "validate", "left_out", "left out: nobody is there"),
        ("gpu01", "pair", "left_out", "left out"),
    ]


def test_an_objection_reads_as_one_sentence():
    assert format_objection(Objection("1 GPU is missing", "reseat it")) == "1 GPU is missing; to do: reseat it"
    assert format_objection(NO) == "no"


def test_an_event_that_stops_a_node_keeps_the_checks_that_failed(advance, store):
    failed = Objection("2 errors", checks=("ecc-mode", "xid"), level="standard")
    advance("gpu01", "gpu02", validate=["gpu01"], why=failed)
    assert store.latest("gpu01").checks == (
        ClosingCheck("ecc-mode", "standard", "validate"),
        ClosingCheck("xid", "standard", "validate"),
    )
    assert store.latest("gpu02").checks == ()
