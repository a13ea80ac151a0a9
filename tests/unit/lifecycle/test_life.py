import pytest

from gpuops.lifecycle.gates import GATES, gates_for
from gpuops.lifecycle.life import NodeLifecycle, Objection, exit_code
from gpuops.store import StateChange

MACHINE = {"driver": ("580.95.05",), "GPU serials": ("165",)}
OTHER = {**MACHINE, "driver": ("590.1",)}
NO = Objection("no")
LONG = ["burn-in", "validate", "pair"]


class Door:
    def __init__(self):
        self.shut = {}
        self.broken = {}
        self.kept = {}

    def close(self, hosts, state, why):
        self.shut |= {host.name: f"{state} {why}" for host in hosts if host.name not in self.broken}
        return {host.name: self.broken[host.name] for host in hosts if host.name in self.broken}

    def others(self, hosts):
        return {host.name: self.kept[host.name] for host in hosts if host.name in self.kept}


@pytest.fixture
def door():
    return Door()


@pytest.fixture
def climb(store, door, a_host):
    """Leads nodes through all gates; those named object, the fingerprint is given. Tells which gates were tried."""

    def climb(*names, machine=MACHINE, without=(), why=NO, **objections):
        tried = []
        life = NodeLifecycle(store, store.begin("onboard", who="ops"), door)
        hosts = [a_host(name) for name in names]

        def facts(some):
            return life.recognise(some, dict.fromkeys(names, machine))

        def attempt(name):
            def try_it(some):
                tried.append((name, [host.name for host in some]))
                return dict.fromkeys(objections.get(name.replace("-", "_"), ()), why)

            return facts if name == "facts" else try_it

        state = store.present().get(names[0])
        through = life.climb(
            hosts,
            gates_for(state.state if state else "new"),
            {g.name: attempt(g.name) for g in GATES if g.name not in without},
        )
        return life, [host.name for host in through], dict(tried)

    return climb


def test_who_passes_every_gate_is_admitted(climb, store):
    life, through, tried = climb("gpu01", "gpu02")
    assert through == ["gpu01", "gpu02"]
    assert list(tried) == [gate.name for gate in GATES[1:]]
    assert [event.state for event in store.history("gpu01")] == [
        "new", "provisioned", "burned_in", "validated", "admitted",
    ]  # fmt: skip
    assert store.last("gpu01").fingerprint == MACHINE
    assert exit_code(life.stopped) == 0


def test_who_fails_stops_there_and_the_others_go_on(climb, store, door):
    life, through, tried = climb("gpu01", "gpu02", burn_in=["gpu01"])
    assert through == ["gpu02"]
    assert tried["validate"] == ["gpu02"]
    assert (store.last("gpu01").state, store.last("gpu01").why) == ("provisioned", "stopped at burn-in: no")
    assert door.shut["gpu01"] == "provisioned burn-in: no"
    assert "gpu02" not in door.shut
    assert exit_code(life.stopped) == 1


def test_next_time_it_goes_on_from_there(climb, store):
    climb("gpu01", pair=["gpu01"])
    _, through, tried = climb("gpu01")
    assert through == ["gpu01"]
    assert not {"burn-in", "validate"} & set(tried)
    assert tried["pair"] == ["gpu01"]
    assert store.last("gpu01").state == "admitted"


def test_a_gate_that_is_left_out_stops_nobody_and_proves_nothing(climb, store):
    _, through, tried = climb("gpu01", without=["burn-in"])
    assert through == ["gpu01"]
    assert "burn-in" not in tried
    assert "burn-in" not in {gate.gate for gate in store.passed("gpu01")}
    assert [e.why for e in store.history("gpu01") if e.state == "burned_in"] == ["burn-in was left out"]


def test_a_gate_that_nobody_could_try_stops_nobody_and_proves_nothing(climb, store):
    alone = Objection("left out: nobody is there", exit_code=0)
    life, through, _ = climb("gpu01", pair=["gpu01"], why=alone)
    assert (through, life.stopped) == (["gpu01"], {})
    assert "pair" not in {gate.gate for gate in store.passed("gpu01")}
    assert [e.why for e in store.history("gpu01") if e.state == "validated"] == ["pair was left out: nobody is there"]
    _, _, tried = climb("gpu01")
    assert "pair" not in tried  # it takes jobs, and is not disturbed
    store.move("gpu01", life.run, lambda _: StateChange("drained", "x", MACHINE))
    _, _, tried = climb("gpu01")
    assert tried["pair"] == ["gpu01"]
    assert "burn-in" not in tried


def test_after_a_repair_the_long_tests_begin_anew(climb, store):
    life, _, _ = climb("gpu01")
    store.move("gpu01", life.run, lambda _: StateChange("repair", "PSU 2", MACHINE))
    _, _, tried = climb("gpu01")
    assert set(LONG) <= set(tried)


def test_an_admitted_node_that_tells_no_more_what_it_is_is_told_of_and_keeps_its_jobs(climb, store, door):
    climb("gpu01")
    life, through, _ = climb("gpu01", machine={"driver": MACHINE["driver"]})
    assert through == []
    assert "it tells no more of its GPU serials" in life.stopped["gpu01"][1].why
    assert (store.last("gpu01").state, door.shut, exit_code(life.stopped)) == ("admitted", {}, 3)


def test_what_an_admitted_node_was_stopped_at_is_over_when_it_passes_again(climb, store):
    climb("gpu01")
    climb("gpu01", second_pass=["gpu01"])
    assert store.last("gpu01").why == "stopped at second-pass: no"
    climb("gpu01")
    assert (store.last("gpu01").state, store.last("gpu01").why) == ("admitted", "it is again as it was admitted")


def test_another_machine_starts_its_long_tests_anew(climb):
    climb("gpu01", pair=["gpu01"])
    _, _, tried = climb("gpu01", machine=OTHER)
    assert all(tried[name] == ["gpu01"] for name in LONG)


def test_an_admitted_node_is_not_disturbed(climb, store, door):
    climb("gpu01")
    before = len(store.history("gpu01"))
    _, through, tried = climb("gpu01")
    assert through == ["gpu01"]
    assert list(tried) == ["preflight", "second-pass"]
    assert len(store.history("gpu01")) == before
    assert door.shut == {}


def test_an_admitted_node_that_drifted_is_told_and_keeps_its_jobs(climb, store, door):
    climb("gpu01")
    life, _, _ = climb("gpu01", second_pass=["gpu01"])
    assert store.last("gpu01").state == "admitted"
    assert door.shut == {}
    assert exit_code(life.stopped) == 1


def test_an_admitted_node_that_is_another_machine_is_let_out(climb, store, door):
    climb("gpu01")
    life, through, tried = climb("gpu01", machine=OTHER)
    assert (through, tried) == ([], {})
    assert store.last("gpu01").state == "provisioned"
    assert "driver 580.95.05 → 590.1" in store.last("gpu01").why
    assert door.shut["gpu01"].startswith("provisioned ")
    gate, objection = life.stopped["gpu01"]
    assert (gate.name, objection.advice) == ("facts", "let its jobs end, and onboard it anew")
    assert [event.state for event in store.history("gpu01")][-2:] == ["admitted", "provisioned"]


def test_what_the_playbook_made_another_machine_has_its_tests_before_it(store, door, a_host):
    life, host = NodeLifecycle(store, store.begin("x", who="ops"), door), a_host("gpu01")
    store.move("gpu01", life.run, lambda _: StateChange("validated", "x", MACHINE))
    assert life.recognise([host], {"gpu01": OTHER}) == {}
    assert store.last("gpu01").state == "provisioned"
    assert store.last("gpu01").fingerprint == OTHER


def test_that_it_cannot_be_let_out_is_told_too(climb, door):
    climb("gpu01")
    door.broken["gpu01"] = "scontrol says: no"
    life, _, _ = climb("gpu01", machine=OTHER)
    assert "it cannot be closed to jobs: scontrol says: no" in life.stopped["gpu01"][1].why


def test_only_nodes_that_take_no_jobs_are_closed(store, door, a_host):
    life = NodeLifecycle(store, store.begin("x", who="ops"), door)
    store.move("gpu02", life.run, lambda _: StateChange("admitted", "x"))
    door.broken["gpu03"] = "scontrol says: no"
    door.kept = {"gpu02": "drained by alice", "gpu04": "drained by alice"}
    hindered = life.close([a_host(name) for name in ("gpu01", "gpu02", "gpu03", "gpu04")], "onboarding")
    assert door.shut == {"gpu01": "new onboarding"}
    assert {node: (objection.why, objection.exit_code) for node, objection in hindered.items()} == {
        "gpu03": ("it cannot be closed to jobs: scontrol says: no", 3),
        "gpu04": ("drained by alice", 3),
    }


@pytest.mark.parametrize(("codes", "expected"), [((), 0), ((3,), 3), ((3, 1), 1), ((1, 3, 4), 4)])
def test_the_exit_code_is_the_gravest(codes, expected):
    stopped = {str(number): (GATES[0], Objection("x", exit_code=code)) for number, code in enumerate(codes)}
    assert exit_code(stopped) == expected
