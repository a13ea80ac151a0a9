"""Chances of false alarms: tails of counts, and the run length of a CUSUM; pure."""

from __future__ import annotations

import math

FALSE_ALARMS_PER_NODE_MONTH = 0.01
"""Our budget for each kind of test on all parts of a node: one false alarm in 100 node-months; a choice."""
RUNS_PER_MONTH = 150
"""Five runs a day."""


def binomial_tail(rises: int, runs: int, chance: float) -> float:
    """Return the probability that at least ``rises`` of ``runs`` independent runs show what each does by ``chance``."""
    return math.fsum(math.comb(runs, k) * chance**k * (1 - chance) ** (runs - k) for k in range(rises, runs + 1))


def poisson_tail(count: int, mean: float) -> float:
    """Return the probability of at least ``count`` events if ``mean`` are expected; ``count`` is small."""
    term, below = math.exp(-mean), 0.0
    for k in range(count):
        below += term
        term *= mean / (k + 1)
    return max(0.0, 1.0 - below)


def cusum_run_length(slack: float, limit: float) -> float:
    """Return the mean number of values until a one-sided CUSUM of standard normal values passes ``limit``.

    Siegmund's approximation: (exp(2kb) - 1 - 2kb) / 2k², b = limit + 1.166, k = slack. Source: D. Siegmund, Sequential
    Analysis, 1985, chapter 2.
    """
    b = limit + 1.166
    return (math.exp(2 * slack * b) - 1 - 2 * slack * b) / (2 * slack**2)
