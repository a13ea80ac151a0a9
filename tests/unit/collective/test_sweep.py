import itertools
from types import SimpleNamespace

import pytest

from gpuops.collective.engines import Curve, Point, Sweep
from gpuops.collective.request import SweepRequest
from gpuops.collective.session import Snapshot
from gpuops.collective.sweep import SweepResult, typical
from gpuops.collective.sweep_session import SweepSession, _plan
from gpuops.errors import CancelledError, InputError
from gpuops.isolation.fabric import Fabric, FabricNode
from gpuops.isolation.rounds import RankGroup
from gpuops.reasons import Excluded


def ready(engine="nccl", gpus=8):
    fabric = Fabric({name: FabricNode(name, tuple(range(gpus)), ()) for name in "abc"})
    return SimpleNamespace(engine=SimpleNamespace(name=engine), fabric=fabric)


class Engine:
    """An engine that measures one point of each size."""

    def __init__(self):
        self.ran = []

    def sweep(self, sweeps):
        self.ran.append([sweep.group.nodes for sweep in sweeps])
        return tuple(Curve(s, tuple(Point(size, 1.0, 1.0) for size in s.sizes_bytes)) for s in sweeps)


def curve(nodes, *rates, trouble=""):
    points = tuple(Point(1024 << step, 1 / rate, rate, algorithm="RING/LL") for step, rate in enumerate(rates))
    return Curve(Sweep(RankGroup(tuple(nodes)), ()), points, trouble)


@pytest.mark.parametrize(("scope", "ran"), [("node", [("a",), ("b",), ("c",)]), ("group", [("a", "b", "c")])])
def test_every_node_takes_part_once(scope, ran):
    session, engine = SweepSession(list("abc")), Engine()
    session.run(engine, _plan(ready(), SweepRequest(), scope), lambda _nodes: Snapshot())
    assert engine.ran == [ran]
    assert [curve.sweep.group.nodes for curve in session.curves] == ran


@pytest.mark.parametrize("when", [1, 2])
def test_node_that_is_busy_before_or_after_leaves_and_the_group_runs_without_it(when):
    """A group that one busy node slowed down is measured again without it."""
    session, engine, looks = SweepSession(list("abc")), Engine(), []

    def monitor(nodes):
        looks.append(nodes)
        return Snapshot({"b": Excluded("b", "busy", "alice")} if len(looks) == when else {})

    session.run(engine, _plan(ready(), SweepRequest(), "group"), monitor)
    assert engine.ran[-1] == [("a", "c")]
    assert [curve.sweep.group.nodes for curve in session.curves] == [("a", "c")]
    assert set(session.excluded) == {"b"}


def test_one_node_alone_is_no_group():
    session, engine = SweepSession(["a"]), Engine()
    session.run(engine, _plan(ready(), SweepRequest(), "group"), pytest.fail)
    assert session.curves == engine.ran == []


def test_ctrl_c_keeps_what_was_measured():
    session, engine = SweepSession(list("abc")), Engine()

    def stop(_sweeps):
        raise CancelledError("interrupted")

    session.run(engine, _plan(ready(), SweepRequest(), "node"), lambda _nodes: Snapshot(), stop)
    assert session.interrupted
    assert SweepResult("all_reduce", "node", "nccl", interrupted=True).conclusion() == "interrupted"


@pytest.mark.parametrize(
    ("request_", "engine", "gpus", "first", "last"),
    [
        (SweepRequest(), "nccl", 8, 1 << 10, 1 << 30),
        (SweepRequest(), "nccl", 100, 1 << 10, 4 << 30),  # 8 MiB for each of 300 ranks, rounded up
        (SweepRequest(), "nccl", 1000, 1 << 10, 8 << 30),
        (SweepRequest(), "tcp", 8, 1 << 10, 64 << 20),
        (SweepRequest(min_size=3000, max_size=20000), "nccl", 8, 3000, 12000),
        (SweepRequest(min_size=1 << 34), "nccl", 8, 1 << 34, 1 << 34),
    ],
)
def test_sizes_double_from_the_smallest_to_the_largest(request_, engine, gpus, first, last):
    (sweep,) = _plan(ready(engine, gpus), request_, "group")("abc", ())
    sizes = sweep.sizes_bytes
    assert (sizes[0], sizes[-1]) == (first, last)
    assert all(b == 2 * a for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"engine": "tcp", "scope": "node"}, "tcp measures between nodes only"),
        ({"min_size": 4}, "min_size=4 is too small"),
        ({"min_size": 2048, "max_size": 1024}, "max_size=1024 is less than min_size=2048"),
        ({"scope": "rail"}, 'unknown scope "rail"'),
    ],
)
def test_impossible_request_is_refused(fields, why):
    with pytest.raises(InputError, match=why):
        SweepRequest(**fields)


def test_typical_curve_is_the_median_of_the_sizes_that_all_have():
    curves = [curve("a", 10.0, 20.0), curve("b", 11.0, 26.0), curve("c", 30.0)]
    assert [(point.size_bytes, point.gb_per_s) for point in typical(curves)] == [(1024, 11.0)]
    assert [point.gb_per_s for point in typical(curves[:2])] == [10.5, 23.0]
    assert typical(curves[:1]) == list(curves[0].points)


@pytest.mark.parametrize(
    ("curves", "excluded", "conclusion"),
    [
        ([curve("a", 1.0)], {}, "ok"),
        ([curve("a", 1.0), curve("b", trouble="hang")], {}, "incomplete"),
        ([curve("a", 1.0), curve("b", trouble="wrong")], {}, "failed"),
        ([curve("a", 1.0)], {"b": Excluded("b", "busy", "alice")}, "incomplete"),
        ([], {}, "incomplete"),
    ],
)
def test_conclusion_is_ok_only_if_every_node_has_its_curve(curves, excluded, conclusion):
    assert SweepResult("all_reduce", "node", "nccl", curves=curves, excluded=excluded).conclusion() == conclusion
