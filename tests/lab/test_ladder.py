"""The ladder on a running lab: real connections between processes on the hosts, and the model's ib_write_bw."""

import pytest

from gpuops.collective.network_tests.ladder import Ladder
from gpuops.collective.pool import Pool
from gpuops.inventory import Inventory


@pytest.fixture
def ladder(lab, home, connections):
    """Return a function that runs the ladder on hosts and returns the failures and the remaining hosts."""
    pools = []

    def go(pattern="all", **more):
        pool = Pool(Inventory.open(str(lab.folder / "inventory.yml")).select(pattern), connections)
        pools.append(pool)
        failures = Ladder(pool, **more).run()
        return (
            {f.nodes: f"{f.test}: {f.why}" for f in failures},
            list(pool.hosts),
            {name: reason.why for name, reason in pool.excluded.items()},
        )

    yield go
    for pool in pools:
        pool.close()


def test_healthy_hosts_pass_every_test(ladder):
    tests = []
    failed, left, _ = ladder(on_test=tests.append)
    assert not failed
    assert left == ["gpu01", "gpu02", "gpu03"]
    assert tests == ["names", "clocks", "connections", "packets", "rdma", "ib_write_bw"]


def test_a_host_whose_clock_is_off_leaves_and_the_others_go_on(ladder, plant):
    plant("gpu02:host:clock-skew=3600")
    failed, left, gone = ladder(over_rdma=False)
    assert failed == {("gpu02",): "clocks: its clock is 3600 s ahead of the others'"}
    assert left == ["gpu01", "gpu03"]
    assert gone == {"gpu02": "clocks: its clock is 3600 s ahead of the others'"}


def test_a_rail_that_is_down_is_told_and_its_host_leaves(ladder, plant):
    plant("gpu03:mlx5_4:port-down")
    failed, left, _ = ladder(writes=False)
    assert failed == {("gpu03",): "rdma: mlx5_4 is Down"}
    assert left == ["gpu01", "gpu02"]


def test_a_slow_hca_is_told_apart_from_its_partners_and_stays_to_be_measured(ladder, plant):
    plant("gpu02:mlx5_3:slow=40")
    failed, left, _ = ladder()
    assert list(failed) == [("gpu02",)]
    assert failed["gpu02",].startswith("ib_write_bw: mlx5_3 writes ")
    assert failed["gpu02",].endswith(" of 400 Gbit/s with gpu01 and gpu03")
    assert left == ["gpu01", "gpu02", "gpu03"]


def test_a_host_without_python_leaves_with_that_reason(ladder, plant):
    plant("gpu01:host:no-python")
    _, left, gone = ladder(over_rdma=False)
    assert left == ["gpu02", "gpu03"]
    assert "Python" in gone["gpu01"]
