"""Goodput: how much of a job's time trains, where nodes fail, checkpoints cost time and spares stand by; pure.

Failures are taken to be independent, at a constant rate. Then the formulas are exact, not approximations: Daly, "A
higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), for checkpoints and
restarts, and Erlang's loss formula for a job that waits once all spares are in repair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuops.errors import InputError

DAY = 86400.0


@dataclass(frozen=True)
class FailureRate:
    """Failures that stop a job, per GPU and day, with the source of the number."""

    per_gpu_day: float
    source: str

    def __post_init__(self) -> None:
        if self.per_gpu_day < 0:
            raise InputError(f"a failure rate must be 0 or more, not {self.per_gpu_day}")


LLAMA_3 = FailureRate(
    419 / (54 * 16384), "Llama 3, arXiv:2407.21783, table 5: 419 unexpected interruptions in 54 days on 16,384 H100"
)
"""What a fleet without a record of its own is taken to have."""


def recorded_rate(failures: int, gpus: int, days: float) -> FailureRate | None:
    """Return the rate that a fleet showed, or None where its record is too short to tell (fewer than three failures).

    Of three failures, the 95 % interval is 0.6 to 8.8 (Poisson): the rate is right within a factor of five.
    """
    if failures < 3 or gpus < 1 or days <= 0:
        return None
    return FailureRate(failures / (gpus * days), f"{failures} failures of {gpus} GPUs in {days:.0f} days, in the store")


@dataclass(frozen=True)
class ClusterJob:
    """A job on ``gpus`` GPUs in nodes of ``gpus_per_node``, one of which stops all; times in seconds.

    ``checkpoint_seconds`` is what a checkpoint keeps the job from training. ``restart_seconds`` is everything from a
    failure to the first new step: notice it, swap the node, load. ``repair_seconds`` is how long a node stays away.
    """

    gpus: int
    gpus_per_node: int
    rate: FailureRate
    checkpoint_seconds: float = 60.0
    restart_seconds: float = 600.0
    repair_seconds: float = 2 * DAY
    spares: int = 0

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.gpus_per_node < 1 or self.spares < 0:
            raise InputError("a job needs at least one GPU, one GPU a node, and no negative number of spares")
        if self.checkpoint_seconds <= 0 or self.restart_seconds < 0 or self.repair_seconds < 0:
            raise InputError("a checkpoint takes time; a restart and a repair take no negative time")

    @property
    def failures_per_second(self) -> float:
        """Failures of any part of the job."""
        return self.gpus * self.rate.per_gpu_day / DAY

    @property
    def mean_seconds_between_failures(self) -> float:
        """Mean time between two failures of the job; infinite where nothing fails."""
        return 1 / self.failures_per_second if self.failures_per_second else math.inf


@dataclass(frozen=True)
class Goodput:
    """What becomes of a job's time: ``trained`` is the fraction in which it makes lasting progress.

    ``running`` is the fraction in which it has all its nodes; of that, `effective` trains.
    """

    interval_seconds: float
    failures_per_day: float
    running: float
    trained: float

    @property
    def effective(self) -> float:
        """The effective training time ratio: the fraction that trains of the time in which the job has its nodes."""
        return self.trained / self.running if self.running else 0.0


def young_interval(checkpoint_seconds: float, mean_seconds_between_failures: float) -> float:
    """Return the seconds of training between two checkpoints, √(2·C·M): Young, CACM 17 (1974)."""
    return math.sqrt(2 * checkpoint_seconds * mean_seconds_between_failures)


def daly_interval(checkpoint_seconds: float, mean_seconds_between_failures: float) -> float:
    """Return the seconds of training between two checkpoints: Daly (2006), equation 37."""
    cost, mean = checkpoint_seconds, mean_seconds_between_failures
    if cost >= 2 * mean:
        return mean
    if math.isinf(mean):
        return mean
    ratio = cost / (2 * mean)
    return math.sqrt(2 * cost * mean) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def trained_fraction(job: ClusterJob, interval_seconds: float) -> float:
    """Return the fraction of a running job's time that trains: Daly (2006), equation 20.

    A segment of training with its checkpoint is repeated until none fails in it; a restart can fail too.
    """
    mean = job.mean_seconds_between_failures
    if math.isinf(mean):
        return interval_seconds / (interval_seconds + job.checkpoint_seconds) if math.isfinite(interval_seconds) else 1
    exponent = (interval_seconds + job.checkpoint_seconds) / mean
    if exponent + job.restart_seconds / mean > 700:  # beyond what a float holds: it never gets anywhere
        return 0.0
    return interval_seconds / (mean * math.exp(job.restart_seconds / mean) * math.expm1(exponent))


def running_fraction(job: ClusterJob) -> float:
    """Return the fraction of the time in which the job has all its nodes.

    While it runs, nodes fail at its rate, and each is away for ``repair_seconds``; once one more is away than there
    are spares, the job waits. That is a queue of so many servers without a waiting room: Erlang's loss formula, which
    holds whatever the distribution of the repair time.
    """
    load = job.failures_per_second * job.repair_seconds
    blocked = 1.0
    for servers in range(1, job.spares + 2):
        blocked = load * blocked / (servers + load * blocked)
    return 1 - blocked


def goodput(job: ClusterJob, interval_seconds: float | None = None) -> Goodput:
    """Return what becomes of the job's time, by default with Daly's interval."""
    interval = interval_seconds or daly_interval(job.checkpoint_seconds, job.mean_seconds_between_failures)
    if interval <= 0:
        raise InputError(f"the interval between checkpoints must be more than 0 s, not {interval}")
    running = running_fraction(job)
    trained = running * trained_fraction(job, interval)
    return Goodput(interval, job.failures_per_second * DAY, running, trained)
