import contextlib
import datetime as dt
from types import SimpleNamespace

import pytest

from gpuops.collective import measuring
from gpuops.collective.engines import Load
from gpuops.collective.idleness.proof import Idleness
from gpuops.collective.measurement import Measurement
from gpuops.collective.measuring import idle_nodes, measure, with_evidence
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.collective.pool import Pool
from gpuops.collective.request import MeasureRequest
from gpuops.collective.session import Snapshot
from gpuops.facts import Facts
from gpuops.isolation.evidence import Blame, Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.node_evidence import NodeEvidence, all_reduce
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.profile import NO_PROFILE
from gpuops.reasons import Excluded

NAMES = ("a", "b", "c", "d")
FABRIC = Fabric({name: FabricNode(name, (0, 1), (FabricNic("mlx5_0", 0, 50.0),)) for name in NAMES})


class Monitor:
    """A monitor by which ``in_use`` nodes are not idle."""

    def __init__(self, pool, **in_use):
        self.pool, self.in_use = pool, in_use

    def prove(self):
        return {name: self.in_use.get(name, Idleness(name, "idle")) for name in self.pool.hosts}

    def __call__(self, _names):
        return Snapshot()


class Lease:
    """A lease that is refused for some nodes."""

    def __init__(self, **refused):
        self.refused = refused
        self.given_back = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.given_back = True

    def take(self, hosts):
        return {host.name: self.refused[host.name] for host in hosts if host.name in self.refused}


class Engine:
    """An engine that ``refuses`` some nodes and measures 48 GB/s between the others."""

    cost, why, pids, jobs = "", "it is there", {}, ()

    def __init__(self, name="nccl", refuses=()):
        self.name, self.refuses, self.closed = name, refuses, False
        self.settings = dict.fromkeys(NAMES, ("NCCL 2.28.9",))

    def open(self):
        return {node: Excluded(node, "unsupported", f"no {self.name} there") for node in self.refuses}

    def measure(self, planned):
        return tuple(GroupResult(group, 48.0) for group in planned.groups)

    def close(self):
        self.closed = True


@pytest.fixture
def pool(a_host, connections):
    return Pool([a_host(name, connection="local") for name in NAMES], connections)


@pytest.fixture
def context(pool):
    """What measuring needs beside the nodes: those in use, those whose lease is refused, and what was told."""

    def make(in_use=None, refused=None):
        notes = []
        return SimpleNamespace(
            monitor=lambda *_: Monitor(pool, **(in_use or {})),
            lease=Lease(**(refused or {})),
            notes=notes,
            note=notes.append,
            activity=lambda _words: None,
            on_round=lambda _evidence, _planned: None,
        )

    return make


def test_nodes_in_use_or_not_lent_are_excluded_by_their_kind(pool, context):
    in_use = {"a": Idleness("a", "busy", "pid 7 python"), "b": Idleness("b", "unproved", "no root")}
    fake = context(in_use, {"c": "cannot be leased: it is drained"})
    with idle_nodes(pool, {}, MeasureRequest(), fake):
        assert list(pool.hosts) == ["d"]
        assert not fake.lease.given_back
    assert fake.lease.given_back
    assert pool.excluded == {
        "a": Excluded("a", "busy", "skipped: busy (pid 7 python)"),
        "b": Excluded("b", "unproved", "skipped: not proved idle (no root)"),
        "c": Excluded("c", "leased", "skipped: cannot be leased: it is drained"),
    }
    assert all(reason.on_purpose for reason in pool.excluded.values())


def test_if_no_node_is_idle_nothing_is_opened(pool, context, monkeypatch):
    monkeypatch.setattr(measuring, "choose", pytest.fail)
    in_use = {name: Idleness(name, "busy", "alice") for name in NAMES}
    measurement = measure(pool, FABRIC, {}, MeasureRequest(scopes=("rail",)), context(in_use))
    assert (measurement.engine, measurement.rounds, measurement.evidence.scopes) == ("none", 0, ("rail",))
    assert set(measurement.excluded) == set(NAMES)
    assert measurement.conclusion() == "incomplete"


def test_the_first_engine_that_most_nodes_can_run_is_taken(pool, monkeypatch):
    engines = {"nccl": Engine("nccl", "abc"), "nccl-tests": Engine("nccl-tests", "a"), "tcp": Engine("tcp")}
    monkeypatch.setattr(measuring, "_make", lambda name, *_: engines[name])
    notes = []
    assert measuring.choose(pool, None, MeasureRequest(), Load(), notes.append) is engines["nccl-tests"]
    assert engines["nccl"].closed
    assert notes == ["engine nccl: 3 of 4 nodes cannot run it: no nccl there"]
    assert pool.excluded == {"a": Excluded("a", "unsupported", "no nccl-tests there")}


def test_auto_takes_no_engine_but_those_that_will_do(pool, monkeypatch):
    engines = {"nccl": Engine("nccl", "abcd"), "nccl-tests": Engine("nccl-tests", "abcd")}
    monkeypatch.setattr(measuring, "_make", lambda name, *_: engines[name])
    chosen = measuring.choose(pool, None, MeasureRequest(), Load(), lambda _: None, ("nccl", "nccl-tests"))
    assert chosen is engines["nccl-tests"]
    assert set(pool.excluded) == set(NAMES)


def test_the_engine_that_is_asked_for_is_taken_even_if_few_nodes_can_run_it(pool, monkeypatch):
    engine = Engine("nccl", "abc")
    monkeypatch.setattr(measuring, "_make", lambda *_: engine)
    assert measuring.choose(pool, None, MeasureRequest("nccl"), Load(), pytest.fail) is engine
    assert list(pool.hosts) == ["d"]


@pytest.fixture
def session(pool, context, monkeypatch):
    """Measures with a made-up engine after made-up network tests."""
    engine, loads = Engine(refuses="d"), []
    failure = NetworkFailure("mtu", ("c",), "its MTU is 1500", "raise it")

    def network_tests(pool, *_words, **_options):
        return SimpleNamespace(run=lambda: [failure])

    def make(_name, _pool, _expectations, _request, load):
        loads.append(load)
        return engine

    monkeypatch.setattr(measuring, "Ladder", network_tests)
    monkeypatch.setattr(measuring, "_make", make)

    def run(request=MeasureRequest("nccl"), **more):  # noqa: B008
        measurement = measure(pool, FABRIC, dict.fromkeys(NAMES, NO_PROFILE), request, context(), **more)
        return measurement, loads[0], engine

    return run


def once(evidence):
    return None if evidence.rounds else Round("rail", (RankGroup(("a", "b"), 0), RankGroup(("c",), 0)), "once")


def test_a_measurement_holds_what_the_engine_and_the_network_tests_found(session):
    measurement, load, engine = session(plan=once)
    assert (measurement.engine, measurement.engine_why, measurement.rounds) == ("nccl", "it is there", 1)
    assert [figure.gb_per_s for figure in measurement.evidence.rounds[0].figures] == [48.0, 48.0]
    assert measurement.settings == dict.fromkeys("abc", ("NCCL 2.28.9",))
    assert [failure.why for failure in measurement.failures] == ["its MTU is 1500"]
    assert measurement.excluded == {"d": Excluded("d", "unsupported", "no nccl there")}
    assert measurement.expected[RankGroup(("a", "b"), 0)].limit == "network"
    assert measurement.conclusion() == "failed"
    assert measurement.seconds > 0
    assert load == Load()
    assert engine.closed


def test_the_load_is_that_of_the_request(session):
    request = MeasureRequest("nccl", operation="all_gather", gib=2, seconds=1.5)
    measurement, load, _ = session(request, plan=once, iterations=500)
    assert load == Load("all_gather", 2 << 30, 500, seconds=1.5)
    assert measurement.expected
    assert not any(expected.may_fail for expected in measurement.expected.values())


def test_the_facts_of_each_node_say_what_was_measured_or_why_nothing_was():
    figures = (GroupResult(RankGroup(("a", "b"), 0), 48.0),)
    evidence = Evidence(Fabric({n: FABRIC.nodes[n] for n in "ab"}), (Measured(Round("rail", ()), figures),))
    excluded = {"c": Excluded("c", "busy", "busy (alice)"), "d": Excluded("d", "lost", "it hung", do="look at it")}
    measurement = Measurement(evidence, Blame(), "nccl", excluded=excluded)
    now = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    facts = with_evidence({name: Facts(name, now, {}) for name in (*NAMES, "e")}, measurement)
    assert isinstance(facts["a"][all_reduce], NodeEvidence)
    assert isinstance(facts["b"][all_reduce], NodeEvidence)
    assert (facts["c"][all_reduce].why, facts["c"][all_reduce].skipped_on_purpose) == ("busy (alice)", True)
    assert facts["d"][all_reduce] == excluded["d"]
    assert all_reduce.name not in facts["e"].values


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_lease_is_given_back_whatever_happens(pool, context, error):
    fake = context()
    with contextlib.suppress(error), idle_nodes(pool, {}, MeasureRequest(), fake):
        raise error
    assert fake.lease.given_back
