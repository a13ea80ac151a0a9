"""Goodput: the closed forms against an event simulation of failures, checkpoints, restarts and repairs."""

import heapq
import math
import random

import pytest

from gpuops.errors import InputError
from gpuops.planner.goodput import (
    DAY,
    LLAMA_3,
    ClusterJob,
    FailureRate,
    best_spares,
    daly_interval,
    first_to_finish,
    goodput,
    recorded_rate,
    running_fraction,
    trained_fraction,
    young_interval,
)

FLEETS = [
    ClusterJob(16384, 8, LLAMA_3, 60, 600, 2 * DAY, spares=30),
    ClusterJob(4096, 8, LLAMA_3, 120, 900, 2 * DAY, spares=4),
    ClusterJob(1024, 8, FailureRate(5e-3, "bad"), 300, 1800, DAY, spares=6),
    ClusterJob(1024, 8, FailureRate(5e-3, "bad"), 300, 1800, DAY, spares=1),
]


def simulated(job, interval, failures, seed=7):
    """Return the trained fraction of a job that is followed failure by failure."""
    chance = random.Random(seed)
    now = trained = 0.0
    in_repair = []  # times at which nodes come back
    restarting = 0.0
    for _ in range(failures):
        lived = chance.expovariate(job.failures_per_second)
        worked = max(0.0, lived - restarting)
        trained += interval * math.floor(worked / (interval + job.checkpoint_seconds))
        now += lived
        while in_repair and in_repair[0] <= now:
            heapq.heappop(in_repair)
        heapq.heappush(in_repair, now + chance.expovariate(1 / job.repair_seconds))
        if len(in_repair) > job.spares:
            now = heapq.heappop(in_repair)
        restarting = job.restart_seconds
    return trained / now


@pytest.mark.parametrize("job", FLEETS)
def test_closed_form_equals_the_simulation(job):
    expected = goodput(job)
    assert simulated(job, expected.interval_seconds, 60_000) == pytest.approx(expected.trained, rel=0.03)


@pytest.mark.parametrize("job", FLEETS)
def test_daly_is_the_best_interval(job):
    best = daly_interval(job.checkpoint_seconds, job.mean_seconds_between_failures)
    at_best = trained_fraction(job, best)
    assert all(trained_fraction(job, best * factor) < at_best for factor in (0.6, 0.8, 1.25, 1.6))


def test_young_and_daly_agree_where_failures_are_rare():
    assert young_interval(60, 1e7) == pytest.approx(math.sqrt(1.2e9))
    assert daly_interval(60, 1e7) == pytest.approx(young_interval(60, 1e7), rel=0.01)
    assert daly_interval(60, 20) == 20


def test_llama_3_trained_more_than_90_percent_of_the_time():
    """arXiv:2407.21783, section 3.3.4; with 419 interruptions in 54 days, one every 3.1 hours."""
    job = ClusterJob(16384, 8, LLAMA_3, checkpoint_seconds=20, restart_seconds=300, spares=60)
    assert job.mean_seconds_between_failures / 3600 == pytest.approx(3.09, abs=0.01)
    assert 0.90 < goodput(job).trained < 0.97


def test_waiting_for_repairs_is_erlangs_loss():
    """Load 2 with three servers: B = 4/19."""
    job = ClusterJob(8, 8, FailureRate(0.25, "test"), repair_seconds=DAY, spares=2)
    assert running_fraction(job) == pytest.approx(1 - 4 / 19)


def test_spares_pay_until_they_only_stand_by():
    job = ClusterJob(8, 8, LLAMA_3, repair_seconds=3 * DAY)
    few, many = best_spares(job, 64), best_spares(job, 2048)
    assert 0 < few < many < 100
    assert best_spares(ClusterJob(8, 8, FailureRate(0.0, "none")), 64) == 0


def test_a_slower_layout_on_fewer_gpus_can_finish_first():
    fragile = FailureRate(0.05, "bad")
    large, small = (
        ClusterJob(4096, 8, fragile, 300, 1800, spares=500),
        ClusterJob(1024, 8, fragile, 300, 1800, spares=500),
    )
    assert first_to_finish([(large, 0), (small, 0)], [1.0, 2.0]) == 1
    assert first_to_finish([(large, 0), (small, 0)], [1.0, 400.0]) == 0


def test_nothing_fails_and_everything_fails():
    safe, hopeless = ClusterJob(8, 8, FailureRate(0, "none")), ClusterJob(10**6, 8, FailureRate(10, "bad"))
    assert goodput(safe).trained == 1
    assert trained_fraction(hopeless, 1e6) == 0


def test_a_short_record_gives_no_rate():
    assert recorded_rate(2, 512, 30) is None
    assert recorded_rate(6, 512, 30).per_gpu_day == pytest.approx(6 / 15360)


@pytest.mark.parametrize("wrong", [{"gpus": 0}, {"spares": -1}, {"checkpoint_seconds": 0}, {"restart_seconds": -1}])
def test_impossible_numbers_are_refused(wrong):
    with pytest.raises(InputError):
        ClusterJob(**{"gpus": 8, "gpus_per_node": 8, "rate": LLAMA_3, **wrong})
