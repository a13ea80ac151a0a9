import itertools

import pytest

from gpuops.collective.session import Snapshot, run
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.reasons import Excluded

FABRIC = Fabric({name: FabricNode(name, (0,), (FabricNic("eth0", 0, 1.0),)) for name in ("a", "b", "c")})
PAIRS = [("a", "b"), ("b", "c"), ("a", "c")]
BUSY = {name: Excluded(name, "busy", "busy (alice)") for name in "bc"}


class Engine:
    name, why = "made-up", "a test"

    def __init__(self, interrupt_at=None):
        self.measured, self.interrupt_at = [], interrupt_at

    def open(self):
        return {}

    def measure(self, planned):
        if len(self.measured) == self.interrupt_at:
            raise KeyboardInterrupt
        self.measured.append(planned)
        return tuple(GroupResult(group, 1.0) for group in planned.groups)

    def close(self):
        pass


def every_pair_once(evidence):
    """Asks for each pair of nodes that are still there and were not measured."""
    seen = {m.round.groups[0].nodes for m in evidence.rounds}
    left = [pair for pair in PAIRS if pair not in seen and set(pair) <= set(evidence.fabric.nodes)]
    return Round("rail", (RankGroup(left[0], 0),), "next") if left else None


def session(engine, monitor=lambda _: Snapshot(), threshold_for=lambda _: None, **more):
    return run(engine, Evidence(FABRIC), plan=every_pair_once, monitor=monitor, threshold_for=threshold_for, **more)


def test_rounds_are_measured_until_none_is_planned():
    engine = Engine()
    result = session(engine, threshold_for=lambda group: 0.9 if group.nodes == ("a", "b") else None)
    assert [p.groups[0].nodes for p in engine.measured] == PAIRS
    assert [m.figures[0].gb_per_s for m in result.evidence.rounds] == [1.0] * 3
    assert result.evidence.expected == {RankGroup(("a", "b"), 0): 0.9}
    assert not result.interrupted


def test_a_node_that_became_busy_is_left_alone_from_then_on():
    engine = Engine()
    result = session(engine, monitor=lambda nodes: Snapshot({"c": BUSY["c"]} if "c" in nodes else {}))
    assert [p.groups[0].nodes for p in engine.measured] == [("a", "b")]
    assert result.excluded == {"c": BUSY["c"]}
    assert "c" not in result.evidence.fabric.nodes


def test_a_round_that_follows_at_once_with_the_same_nodes_needs_no_look_of_its_own(monkeypatch):
    def twice_the_same(evidence):
        return Round("rail", (RankGroup(("a", "b"), 0),), "again") if len(evidence.rounds) < 2 else None

    def looks(seconds_between):
        asked, clock = [], itertools.count(step=seconds_between)
        monkeypatch.setattr("gpuops.collective.session.time.monotonic", lambda: next(clock))
        run(
            Engine(),
            Evidence(FABRIC),
            plan=twice_the_same,
            monitor=lambda nodes: asked.append(nodes) or Snapshot(),
            threshold_for=lambda _: None,
        )
        return len(asked)

    assert looks(0.1) == 3
    assert looks(2.0) == 4


def test_who_became_busy_during_a_round_is_not_in_the_next():
    def both(evidence):
        return Round("rail", (RankGroup(("a", "b"), 0),), "again") if "b" in evidence.fabric.nodes else None

    looks, engine = iter([Snapshot(), Snapshot({"b": BUSY["b"]})]), Engine()
    result = run(engine, Evidence(FABRIC), plan=both, monitor=lambda _: next(looks), threshold_for=lambda _: None)
    assert (len(engine.measured), result.excluded) == (1, {"b": BUSY["b"]})


def test_only_what_counters_rose_by_is_kept():
    counts = iter([{"a:eth0": {"errors": 5, "drops": 1}}, {"a:eth0": {"errors": 8, "drops": 1}}, {}, {}, {}, {}])
    result = session(Engine(), monitor=lambda _: Snapshot(counters=next(counts)))
    assert result.evidence.rounds[0].counters == {"a:eth0": {"errors": 3}}
    assert result.evidence.rounds[1].counters == {}


def test_a_counter_that_was_reset_or_came_anew_tells_nothing():
    counts = iter([{"a:eth0": {"errors": 5}}, {"a:eth0": {"errors": 0, "new": 7}}] + [{}] * 4)
    assert session(Engine(), monitor=lambda _: Snapshot(counters=next(counts))).evidence.rounds[0].counters == {}


def test_after_ctrl_c_what_was_measured_is_kept():
    result = session(Engine(interrupt_at=2))
    assert result.interrupted
    assert [m.round.groups[0].nodes for m in result.evidence.rounds] == PAIRS[:2]


def test_each_round_is_told_before_it_starts():
    told, engine = [], Engine()
    session(engine, on_round=lambda evidence, planned: told.append((len(evidence.rounds), planned.why)))
    assert told == [(0, "next"), (1, "next"), (2, "next")]


@pytest.mark.parametrize(
    ("trouble", "accused"), [("unreachable", ["b"]), ("hang", ["b"]), ("error", ["b"]), ("wrong", [])]
)
def test_a_node_that_is_lost_in_mid_round_is_accused_though_its_figures_leave_with_it(trouble, accused):
    class Losing(Engine):
        def measure(self, planned):
            return tuple(
                GroupResult(group, None, trouble, ("b",), detail="b: its link is down") for group in planned.groups
            )

    def once(evidence):
        return Round("rail", (RankGroup(("a", "b"), 0),), "next") if "b" in evidence.fabric.nodes else None

    looks = iter([Snapshot(), Snapshot({"b": Excluded("b", "unreachable", "no answer")})])
    result = run(Losing(), Evidence(FABRIC), plan=once, monitor=lambda _: next(looks), threshold_for=lambda _: None)
    assert [accusation.part for accusation in result.lost] == accused
    assert all(accusation.kind == trouble for accusation in result.lost)
    reason = result.excluded["b"]
    assert (reason.kind, bool(reason.do)) == (("lost", True) if accused else ("unreachable", False))
    assert reason.why == ("b: its link is down; no answer" if accused else "no answer")
    assert result.evidence.rounds == ()


class Failing(Engine):
    """A worker of b ends in its first round; only the rounds without b have figures."""

    def __init__(self, absent=("b",)):
        super().__init__()
        self.absent = absent

    def measure(self, planned):
        self.measured.append(planned)
        return tuple(
            GroupResult(group, None, "error", self.absent, detail="b: the worker ended by signal 9")
            if "b" in group.nodes
            else GroupResult(group, 1.0)
            for group in planned.groups
        )


def test_worker_that_ended_stays_in_the_evidence_with_the_words_of_the_node():
    result = session(Failing())
    assert (result.lost, result.excluded) == ((), {})
    failed = [figure for m in result.evidence.rounds for figure in m.figures if figure.trouble]
    assert [(figure.group.nodes, figure.absent) for figure in failed] == [(("a", "b"), ("b",)), (("b", "c"), ("b",))]
    assert all("signal 9" in figure.detail for figure in failed)


def monitor_that_loses_b_after(looks, kind="unreachable"):
    """A monitor to which b answers ``looks`` times."""
    count = itertools.count()

    def look(nodes):
        gone = "b" in nodes and next(count) >= looks
        return Snapshot({"b": Excluded("b", kind, "the connection broke")} if gone else {})

    return look


def test_node_lost_in_the_last_round_is_named():
    def once(evidence):
        return None if evidence.rounds or "b" not in evidence.fabric.nodes else Round("rail", (RankGroup(("a", "b")),))

    looks = monitor_that_loses_b_after(1)
    result = run(Failing(), Evidence(FABRIC), plan=once, monitor=looks, threshold_for=lambda _: None)
    assert [(part.part, part.kind) for part in result.lost] == [("b", "error")]
    assert result.excluded["b"].why == "b: the worker ended by signal 9; the connection broke"


@pytest.mark.parametrize("absent", ["b", "b:gpu3"])
def test_node_lost_some_rounds_after_it_was_missing_is_named(absent):
    plan = iter([("a", "b"), ("a", "c"), ("b", "c")])

    def next_pair(_evidence):
        pair = next(plan, None)
        return Round("rail", (RankGroup(pair),)) if pair else None

    looks = monitor_that_loses_b_after(2)
    result = run(Failing((absent,)), Evidence(FABRIC), plan=next_pair, monitor=looks, threshold_for=lambda _: None)
    assert [(part.part, part.kind) for part in result.lost] == [("b", "error")]


def test_node_that_failed_because_another_user_came_is_not_blamed():
    result = session(Failing(), monitor_that_loses_b_after(1, "busy"))
    assert result.lost == ()
    assert result.excluded["b"].kind == "busy"
