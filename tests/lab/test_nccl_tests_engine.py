import pytest

from gpuops.collective.engines import Load
from gpuops.collective.engines.nccl_tests.engine import NcclTestsEngine
from gpuops.inventory import Inventory
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.lab import cluster

RAILS = Round("rail", tuple(RankGroup(("gpu01", "gpu02"), rail) for rail in range(8)))
WHOLE = Round("group", (RankGroup(("gpu01", "gpu02", "gpu03")),))


@pytest.fixture
def engine(lab, home, opener):
    """Yield the nccl-tests engine for the lab's three hosts, with deadlines short enough for a test."""
    hosts = list(Inventory.load(lab.folder / "inventory.yml").hosts.values())
    nics = tuple(FabricNic(f"mlx5_{rail}", rail, 50.0) for rail in range(8))
    fabric = Fabric({host.name: FabricNode(host.name, tuple(range(8)), nics) for host in hosts})
    made = NcclTestsEngine(hosts, opener, fabric, Load(size_bytes=1 << 28))
    yield made
    made.close()


def rates(figures):
    assert [figure.trouble for figure in figures] == [""] * len(figures)
    return [figure.gb_per_s for figure in figures]


def test_every_rail_is_measured_by_itself(engine, plant):
    plant("gpu02:mlx5_3:slow=35")
    assert engine.open() == {}
    found = rates(engine.measure(RAILS))
    assert 30 < found.pop(3) < 32.5
    assert all(46 < rate < 50 for rate in found)


def test_a_group_is_as_slow_as_its_slowest_part(engine, plant):
    engine.open()
    (before,) = rates(engine.measure(WHOLE))
    plant("gpu03:mlx5_6:slow=40")
    (after,) = rates(engine.measure(WHOLE))
    assert after < 0.7 * before


def test_within_a_node_variants_tell_nvlink_from_its_switches(engine, plant):
    plant("gpu02:gpu5:slow=30")
    engine.open()
    variants = [RankGroup(("gpu01",), variant=variant) for variant in ("", "ring", "no-p2p")]
    nvls, ring, without = (rates(engine.measure(Round("node", (group,))))[0] for group in variants)
    assert nvls > ring > without
    pairs = Round("node", (RankGroup(("gpu02",), gpus=(0, 1)), RankGroup(("gpu01",), gpus=(4, 5))))
    one, other = rates(engine.measure(pairs))
    assert one == pytest.approx(other, rel=0.05)
    (slow,) = rates(engine.measure(Round("node", (RankGroup(("gpu02",), gpus=(4, 5)),))))
    assert slow == pytest.approx(0.7 * one, rel=0.05)


def test_a_node_without_a_link_between_nodes_is_named_and_the_others_finish(engine, plant):
    engine.open()
    plant("gpu03:host:refuse")
    lost, good = engine.measure(Round("pair", (RankGroup(("gpu01", "gpu03")), RankGroup(("gpu02",)))))
    assert (lost.trouble, lost.absent) == ("unreachable", ("gpu03",))
    assert good.gb_per_s > 400


def test_a_hang_is_named_and_leaves_nothing_running(engine, plant, monkeypatch):
    monkeypatch.setattr("gpuops.collective.engines.nccl_tests.engine._START_SECONDS", 1.0)
    engine.open()
    plant("gpu02:host:ranks-hang")
    (figure,) = engine.measure(Round("rail", (RankGroup(("gpu01", "gpu02"), 0),)))
    assert (figure.gb_per_s, figure.trouble, figure.absent) == (None, "hang", ("gpu02",))


def test_wrong_sums_are_told_of_the_groups_that_have_them(engine, plant):
    engine.open()
    plant("gpu02:gpu5:miscounts")
    wrong, good = engine.measure(Round("rail", (RankGroup(("gpu01", "gpu02"), 5), RankGroup(("gpu01", "gpu02"), 4))))
    assert (wrong.gb_per_s, wrong.trouble) == (None, "wrong")
    assert good.gb_per_s > 45


def test_a_port_that_is_down_makes_nccl_take_tcp(engine, plant):
    engine.open()
    plant("gpu02:mlx5_1:port-down")
    (figure,) = engine.measure(Round("rail", (RankGroup(("gpu01", "gpu02"), 1),)))
    assert (figure.gb_per_s, figure.trouble) == (None, "socket")


def test_only_the_nodes_of_a_round_run_anything_heavy(engine, lab):
    engine.open()
    before = len(cluster.audit(lab.folder, "gpu03"))
    engine.measure(RAILS)
    assert cluster.audit(lab.folder, "gpu03")[before:] == []
    assert sum("all_reduce_perf" in line for line in cluster.audit(lab.folder, "gpu02")) >= 8
