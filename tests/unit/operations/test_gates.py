"""Gates of onboarding: how they judge results of playbooks, verdicts and neighbours."""

import dataclasses
import datetime as dt
from types import SimpleNamespace

import pytest

from gpuops.cancellation import CancelToken
from gpuops.cluster import Cluster
from gpuops.collective.request import MeasureRequest
from gpuops.content import builtin
from gpuops.errors import InputError, LockedError
from gpuops.facts import Facts
from gpuops.judging import Finding, Verdict, discover
from gpuops.lifecycle.gates import GATES
from gpuops.lifecycle.life import NodeLifecycle
from gpuops.lifecycle.reopening import Unproved
from gpuops.lifecycle.schedulers import NoScheduler
from gpuops.nodes import Gathered, Nodes
from gpuops.operations.burn_in import burn
from gpuops.operations.gates import Gates, _drift, _first_of_each, _miscounted, _objections, _together
from gpuops.operations.onboard import onboard
from gpuops.playbook.loading import load_playbook
from gpuops.playbook.record import Record
from gpuops.playbook.result import StepResult
from gpuops.playbook.task import TaskRegistry
from gpuops.probes.host.lspci import PciFunction
from gpuops.probing import Unknown
from gpuops.reasons import Excluded, Objection
from gpuops.requests import OnboardRequest
from gpuops.store import ClosingCheck, HostEvent, StateChange

NOW = dt.datetime(2026, 11, 20, tzinfo=dt.timezone.utc)
FINDING = Finding("a GPU is missing", fix="reseat it", part="node")


def record_of(*results, **fields):
    defaults = {
        "playbook": "p.yml", "run_id": "r1", "check": False, "stopped": "", "waiting": {}, "locked": (),
        "untouched": (), "interrupted": False, "seconds": 1.5,
    }  # fmt: skip
    return Record(**{**defaults, **fields, "results": results})


def result(node, status, **more):
    return StepResult(node, "1.1", "A step", status, "why", **more)


@pytest.mark.parametrize(
    ("status", "severity"), [("failed", "failed"), ("unreachable", "incomplete"), ("needs_operator", "incomplete")]
)
def test_stopped_nodes_get_an_objection(status, severity):
    record = record_of(
        result("a", "ok"), result("a", status), result("b", "changed"), result("c", "failed", ignored=True)
    )
    do = "look at a" if severity == "failed" else ""
    assert _objections(record, lambda node: f"look at {node}") == {"a": Objection("A step: why", do, severity)}


def test_a_lock_stops_every_node_of_the_run():
    record = record_of(locked=(LockedError("a is locked by alice on admin9"),), untouched=("a", "b"))
    assert _objections(record) == dict.fromkeys("ab", Objection("a is locked by alice on admin9", severity="locked"))


def test_objection_to_a_node_not_started_names_what_stopped_the_run():
    assert _objections(record_of(stopped="2 of 4 failed", untouched=("d",)))["d"].why == "2 of 4 failed"


def test_a_change_in_the_second_pass_is_drift():
    record = record_of(result("a", "would_change"), result("a", "later"), result("b", "ok"))
    assert _drift(record, lambda _: "look") == {"a": Objection("differs from the playbook: A step, A step", "look")}


def test_most_severe_verdict_is_reported_with_its_fix():
    verdicts = [
        Verdict("gpu-count", "a", "fail", (FINDING,)),
        Verdict("clock", "a", "unknown", why="nobody told"),
        Verdict("clock", "b", "unknown", why="nobody told"),
        Verdict("throttle", "c", "warn", (FINDING,)),
        Verdict("topology", "d", "skipped", why="no GPU"),
    ]
    assert dict(_first_of_each(verdicts, "standard")) == {
        "a": Objection(
            "gpu-count: a GPU is missing (node)", "reseat it", "failed", checks=("gpu-count",), level="standard"
        ),
        "b": Objection("clock: nobody told", "gpuops checks explain clock", "incomplete", level="standard"),
    }


def test_exclusion_explains_unknowns_and_hides_no_failure():
    blind, sick = Objection("dcgm-diagnosis: not asked", "", "incomplete"), Objection("ecc: 2 errors", "reset it")
    excluded = {name: Excluded(name, "unhealthy", "ecc is bad", checks=("ecc",)) for name in "ac"}
    excluded["b"] = Excluded("b", "busy", "fails to be idle")
    objections = _together({"a": blind, "b": blind, "c": sick, "d": blind}, excluded)
    assert {node: (o.why, o.severity) for node, o in objections.items()} == {
        "a": ("ecc is bad", "failed"),
        "b": ("fails to be idle", "incomplete"),
        "c": ("ecc: 2 errors", "failed"),
        "d": ("dcgm-diagnosis: not asked", "incomplete"),
    }


INVENTORY = """\
all:
  hosts:
    a1: {rack: r1}
    a2: {rack: r2}
    a3: {rack: r1}
    a4: {rack: r1, profile: titan-rtx-2x}
    a5: {rack: r1}
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    (tmp_path / "p.yml").write_text("- {hosts: all, tasks: [{command: {words: [x], always: true}}]}\n")
    (tmp_path / "wrong.yml").write_text("- {hosts: all, tasks: [{command: {words: [true], always: true}}]}\n")
    monkeypatch.chdir(tmp_path)
    with Cluster.open("inventory.yml", project=tmp_path) as cluster:
        yield cluster


@pytest.fixture
def work(cluster):
    return cluster._workspace("onboard", CancelToken())


@pytest.fixture
def gates(work):
    with work.open_store() as store:
        run = store.begin("a test", who="ops")
        for node in ("a2", "a3", "a4"):
            store.record_transition(node, run, lambda _: StateChange("admitted", "x"))
        store.record_transition("a5", run, lambda _: StateChange("drained", "x"))
        yield Gates(work, NodeLifecycle(store, run, NoScheduler()), OnboardRequest("p.yml"))


@pytest.fixture
def _silent_network(monkeypatch):
    """Fail the test if any node is asked."""
    monkeypatch.setattr(Nodes, "each_host", lambda *_args, **_options: pytest.fail("a node was asked"))


def test_neighbours_are_admitted_nodes_of_the_same_kind_their_own_rack_first(gates):
    (a1, *_) = gates.work.hosts
    assert [host.name for host in gates._neighbours([a1])] == ["a3", "a2"]


def test_nodes_that_fail_or_do_not_answer_are_not_admitted(gates, monkeypatch):
    facts = {"a1": Facts("a1", dt.datetime.now(dt.timezone.utc), {})}
    silent = {"a2": Excluded("a2", "unreachable", "timed out")}
    monkeypatch.setattr(Nodes, "gather", lambda *_: Gathered(facts, silent))
    unhealthy = {"a1": Excluded("a1", "unhealthy", "one GPU short", checks=("gpu-count",))}
    monkeypatch.setattr("gpuops.operations.gates.unhealthy", lambda *_: unhealthy)
    assert {node: (o.why, o.severity) for node, o in gates.admit(gates.work.hosts[:3]).items()} == {
        "a1": ("one GPU short", "failed"),
        "a2": ("timed out", "incomplete"),
    }


def test_first_node_skips_the_pair_test(gates):
    (*_, a4, _a5) = gates.work.hosts
    (told,) = gates.pair([a4]).values()
    assert "no node is admitted yet" in told.why
    assert told.severity == "left_out"


def test_unreachable_neighbours_do_not_fail_the_node(gates, monkeypatch):
    """A node precedes its neighbours, because the later of two nodes that cannot connect is excluded."""
    measured = []

    def measure(_gates, work, _scopes):
        measured.extend(host.name for host in work.hosts)
        return SimpleNamespace(excluded={name: Excluded(name, "defective", "no route") for name in measured[1:]})

    monkeypatch.setattr(Gates, "_measured", measure)
    (*_, a5) = gates.work.hosts
    why = "no admitted neighbour could take part: a3 no route; a2 no route"
    assert gates.pair([a5]) == {"a5": Objection(why, severity="incomplete")}
    assert measured == ["a5", "a3", "a2"]


def test_view_finds_neighbours_among_all_nodes(cluster, gates):
    view = Gates(cluster.only(["a1"])._workspace("onboard", CancelToken()), gates.life, gates.request)
    assert [host.name for host in view._neighbours(view.work.hosts)] == ["a3", "a2"]


@pytest.mark.usefixtures("_silent_network")
@pytest.mark.parametrize(
    ("group", "playbook", "told"),
    [
        ("nobody", "p.yml", 'no group called "nobody"'),
        ("", "q.yml", "q.yml"),
        ("", "wrong.yml", "wrong.yml:1:.*command"),
    ],
)
def test_invalid_requests_are_refused_before_any_gate(work, group, playbook, told):
    with pytest.raises(InputError, match=told):
        onboard(work, OnboardRequest(playbook, group=group))


def test_preflight_steps_have_the_tag(gates):
    for name, asks in (("p.yml", False), ("onboard", True)):
        assert Gates(gates.work, gates.life, OnboardRequest(name)).asks_first is asks


GPU = PciFunction("0000:1b:00.0", "0302", "10de", "2330", "a1", "")


@pytest.mark.parametrize(
    ("functions", "told"),
    [
        ((GPU, GPU), ""),
        ((GPU,), "1 GPUs on its bus (its profile expects 2)"),
        ((GPU, dataclasses.replace(GPU, revision="ff")), "1 GPUs on its bus"),
        (Unknown("there is no lspci"), "cannot count its GPUs: there is no lspci"),
    ],
)
def test_gpus_are_counted_on_the_bus_and_unknown_counts_do_not_pass(functions, told):
    now = dt.datetime.now(dt.timezone.utc)
    objection = _miscounted(Facts("a1", now, {"gpu_functions": functions}), 2)
    assert (objection.why if objection else "").startswith(told)
    assert bool(objection) is bool(told)


def test_skipped_gate_is_not_tried(gates):
    attempts = Gates(gates.work, gates.life, OnboardRequest("p.yml", without=("burn-in",))).attempts
    assert "burn-in" not in attempts
    assert "validate" in attempts


class Seen(Exception):  # noqa: N818 - not an error
    """Start of a burn-in, with its context."""


def test_a_lease_outlasts_the_burn_in_and_the_diagnosis_before_it(work, monkeypatch):
    def begun(_pool, _sampled, _fabric, _profiles, _request, context, _seconds):
        raise Seen(context)

    monkeypatch.setattr("gpuops.collective.burn_in.burn", begun)
    with pytest.raises(Seen) as seen:
        burn(work, MeasureRequest(), {}, 2 * 3600.0)
    assert seen.value.args[0].lease._minutes == 180


@pytest.mark.parametrize("path", sorted(builtin("playbooks").glob("fixes/*.yml")), ids=lambda path: path.stem)
def test_every_fix_playbook_names_a_check_and_loads(path):
    assert path.stem in discover()
    assert load_playbook(str(path), TaskRegistry()).plays


def _closed_by(gates, node, check, gate="validate", level="standard"):
    each = Unproved(ClosingCheck(check, level, gate), HostEvent(node, "provisioned", "x", NOW, "r", "ops"))
    gates.life.unproved = lambda name: [each] if name == node else []


@pytest.mark.parametrize(
    ("status", "why", "objects"),
    [("pass", "", False), ("unknown", "nobody told", True), ("skipped", "no such part", True), ("warn", "", True)],
)
def test_a_gate_asks_for_a_pass_of_the_check_that_closed_the_node_there(gates, monkeypatch, status, why, objects):
    """An unknown that the profile does not require stops no other node."""
    verdicts = [Verdict("purpose", node, status, why=why) for node in ("a1", "a2")]
    monkeypatch.setattr("gpuops.operations.gates.assess", lambda *_: verdicts)
    monkeypatch.setattr("gpuops.operations.gates.choose", lambda *_: [])
    _closed_by(gates, "a1", "xid")
    facts = {node: Facts(node, NOW, {}) for node in ("a1", "a2")}
    assert list(gates._judged("validate", gates.work, facts, "standard")) == ["a1"]  # nothing judged it
    _closed_by(gates, "a1", "purpose", gate="pair")
    monkeypatch.setattr(type(gates.work.catalogue), "checks", lambda _: {"purpose": None})
    assert gates._judged("validate", gates.work, facts, "standard") == {}
    _closed_by(gates, "a1", "purpose")
    objections = gates._judged("validate", gates.work, facts, "standard")
    assert list(objections) == (["a1"] if objects else [])
    assert all(each.severity == "incomplete" and why in each.why for each in objections.values())


def test_a_gate_that_was_passed_is_tried_again_for_what_closed_the_node_there(gates):
    (host, *_) = gates.work.hosts
    gates.life.fingerprints["a1"] = {"driver": ("1",)}
    gates.life.store.record_gate("a1", "burn-in", gates.life.run, {"driver": ("1",)})
    (burn_in,) = [gate for gate in GATES if gate.name == "burn-in"]
    assert gates.life._is_still_valid(host, burn_in)
    _closed_by(gates, "a1", "purpose", gate="pair")
    assert gates.life._is_still_valid(host, burn_in)
    _closed_by(gates, "a1", "purpose", gate="burn-in")
    assert not gates.life._is_still_valid(host, burn_in)


def test_the_last_gate_refuses_a_node_whose_check_was_left_out(gates):
    _closed_by(gates, "a1", "purpose")
    left_out = Gates(gates.work, gates.life, OnboardRequest("p.yml", without=("validate",)))
    left_out.life.scheduler = SimpleNamespace(resume=lambda _: {})
    assert "purpose failed at validate" in left_out.admit(gates.work.hosts[:2])["a1"].why
    assert list(left_out.admit(gates.work.hosts[:2])) == ["a1"]
