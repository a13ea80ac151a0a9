"""Busy checks of running lab nodes over real SSH, before they are put under load."""

import pytest

from gpuops.collective.idleness.monitor import IdleMonitor
from gpuops.collective.idleness.proof import NodeAllocation
from gpuops.collective.pool import Pool
from gpuops.inventory import Inventory
from gpuops.profile import NO_PROFILE
from gpuops.reasons import Excluded


@pytest.fixture
def pool(lab, home, connections):
    pool = Pool(Inventory.open(str(lab.folder / "inventory.yml")).select("all"), connections)
    yield pool
    pool.close()


@pytest.fixture
def watch(pool):
    return lambda **more: IdleMonitor(pool, dict.fromkeys(pool.hosts, NO_PROFILE), **more)


def told(watch):
    return {name: str(found) for name, found in watch.prove().items()}


def test_a_host_with_a_job_is_busy_and_the_others_are_idle(plant, watch):
    plant("gpu02:gpu0:busy")
    assert told(watch()) == {
        "gpu01": "idle",
        "gpu02": "busy (Slurm job 4711 train, user alice, and 1 more)",
        "gpu03": "idle",
    }
    assert told(watch(force_busy={"gpu02"}))["gpu02"] == "idle"


def test_a_host_whose_processes_may_not_be_seen_is_not_proved_idle(plant, watch):
    plant("gpu01:host:no-sudo")
    assert told(watch())["gpu01"].startswith("not proved idle (only root sees every process")


def test_a_job_that_starts_between_two_rounds_is_seen_before_the_second(plant, watch):
    look = watch()
    assert set(told(look).values()) == {"idle"}
    before = look({"gpu01", "gpu02"})
    assert not before.excluded
    assert before.counters["gpu01:mlx5_0"]["symbol_error"] == 0
    plant("gpu02:host:busy")
    why = "busy (Slurm job 4711 train, user alice, and 8 more)"
    assert look({"gpu01", "gpu02"}).excluded == {"gpu02": Excluded("gpu02", "busy", why)}


def test_our_own_ranks_and_our_own_slurm_job_are_no_ones_elses(plant, watch):
    look = watch(pids=lambda: {"gpu02": range(48211, 48219)}, jobs=lambda: ["4711"])
    assert set(told(look).values()) == {"idle"}
    plant("gpu02:host:busy")
    assert not look({"gpu02"}).excluded
    assert set(told(watch(slurm_job="4711", pids=lambda: {"gpu02": range(48211, 48219)})).values()) == {"idle"}


def test_a_node_that_is_lost_is_not_idle(plant, watch, lab):
    plant("gpu03:host:die-mid-answer")
    reason = watch()({"gpu01", "gpu03"}).excluded["gpu03"]
    assert (reason.kind, reason.unreachable) == ("unreachable", "lost")


def test_pods_of_a_scheduler_elsewhere_count(watch):
    look = watch(allocations=lambda hosts: {host.name: (NodeAllocation("pod ml/train-0"),) for host in hosts})
    assert set(told(look).values()) == {"busy (pod ml/train-0)"}
    assert look({"gpu01"}).excluded == {"gpu01": Excluded("gpu01", "busy", "busy (pod ml/train-0)")}
