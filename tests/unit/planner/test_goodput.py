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
    daly_interval,
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


@pytest.mark.parametrize(("mean_minutes", "best"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_intervals_that_daly_published(mean_minutes, best):
    """Daly (2006), figures 3 to 5: a checkpoint of 5 minutes, and a restart of 10."""
    assert daly_interval(300, 60 * mean_minutes) / 60 == pytest.approx(best, abs=0.5 if best > 10 else 0.05)


RSC_1 = FailureRate(6.50 / 1000 / 8, "Kokolis et al., arXiv:2410.21680: 6.50 failures in 1,000 node-days, RSC-1")


@pytest.mark.parametrize(("gpus", "hours"), [(16384, 1.80), (131072, 0.23)])
def test_times_between_failures_that_meta_published(gpus, hours):
    assert ClusterJob(gpus, 8, RSC_1).mean_seconds_between_failures / 3600 == pytest.approx(hours, abs=0.005)


@pytest.mark.parametrize("minutes", [5, 20, 60])
@pytest.mark.parametrize("gpus", [256, 1024, 4096])
@pytest.mark.parametrize("rate", [RSC_1, LLAMA_3], ids=["RSC-1", "Llama 3"])
def test_effective_time_is_metas_where_failures_are_rare(rate, gpus, minutes):
    """The approximation of Kokolis et al. is (1 - N r (u + τ/2)) / (1 + w/τ); ours is exact, and so is following it."""
    job = ClusterJob(gpus, 8, rate, checkpoint_seconds=10, restart_seconds=300, spares=gpus // 8)
    interval, mean = 60.0 * minutes, job.mean_seconds_between_failures
    approximate = (1 - (300 + interval / 2) / mean) / (1 + 10 / interval)
    result = goodput(job, interval)
    assert result.effective == pytest.approx(approximate, rel=0.03)
    assert simulated(job, interval, 20_000) == pytest.approx(result.trained, rel=0.03)


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
