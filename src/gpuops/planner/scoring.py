"""How close the planner comes to measured runs: errors of the time and the order of layouts, calibrated or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gpuops.planner.candidates import Numbers
from gpuops.planner.constants import PRIORS, Constants
from gpuops.planner.published import PublishedRun, Skipped, in_groups
from gpuops.planner.step_time import step_time


class Prediction(NamedTuple):
    """One run: measured and predicted seconds of a step."""

    id: str
    measured_seconds: float
    predicted_seconds: float


@dataclass(frozen=True)
class Score:
    """Errors are in percent of the measured time; ``spearman`` is of TFLOP/s per GPU over all runs.

    ``regret`` is how many percent slower the layout is that the planner would choose than the best, where only the
    layout changed; ``kendall`` is the mean rank correlation there. Both are None without such runs.
    """

    rows: int
    scored: int
    skipped: tuple[Skipped, ...]
    mape: float
    median: float
    spearman: float | None
    regret: float | None
    kendall: float | None
    predictions: tuple[Prediction, ...]


def predicted_seconds(run: PublishedRun, constants: Constants = PRIORS) -> float:
    """Return the seconds of a step of ``run``; if its row leaves its layout open, those of the fastest it may mean."""
    return float(step_time(run.model, run.cluster, run.training, run.candidates, constants).total.min())


def score(runs: Sequence[PublishedRun], seconds: Sequence[float], skipped: Sequence[Skipped] = ()) -> Score:
    """Return how close the predicted ``seconds`` of ``runs`` are; no run at all has an error of 0 %."""
    measured, predicted = np.array([run.seconds for run in runs]), np.array(seconds, dtype=np.float64)
    errors = np.abs(predicted / measured - 1) if len(runs) else np.zeros(1)
    work = np.array([run.model_flops / run.cluster.gpus for run in runs])
    predictions = tuple(Prediction(r.id, r.seconds, float(p)) for r, p in zip(runs, seconds, strict=True))
    by_run = {id(run): (run.seconds / run.samples, p / run.samples) for run, p in zip(runs, seconds, strict=True)}
    groups = [[_mean([by_run[id(run)] for run in same]) for same in layouts] for layouts in in_groups(runs)]
    return Score(
        len(runs) + len(skipped),
        len(runs),
        tuple(skipped),
        100 * float(errors.mean()),
        100 * float(np.median(errors)),
        _correlation(_ranks(work / measured), _ranks(work / predicted)) if len(runs) > 1 else None,
        100 * float(np.mean([_regret(group) for group in groups])) if groups else None,
        float(np.mean([_kendall(group) for group in groups])) if groups else None,
        predictions,
    )


def _ranks(values: Numbers) -> Numbers:
    """Return the ranks of ``values``; equal ones share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])


def _correlation(a: Numbers, b: Numbers) -> float | None:
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean()) / spread if spread else None


def _mean(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean measured and predicted seconds of runs of one layout."""
    return sum(a for a, _ in pairs) / len(pairs), sum(b for _, b in pairs) / len(pairs)


def _regret(group: Sequence[tuple[float, float]]) -> float:
    chosen = min(group, key=lambda pair: pair[1])
    return chosen[0] / min(measured for measured, _ in group) - 1


def _kendall(group: Sequence[tuple[float, float]]) -> float:
    """Return Kendall's tau of measured and predicted times; a pair predicted as equal counts as neither."""
    pairs = [(a, b) for i, a in enumerate(group) for b in group[:i]]
    signs = [np.sign(a[0] - b[0]) * np.sign(a[1] - b[1]) for a, b in pairs]
    return float(sum(signs)) / len(pairs)


def correct(constants: Constants, run: PublishedRun) -> Constants:
    """Return ``constants`` scaled so that ``run`` takes as long as it was measured: the calibration by one run."""
    return replace(constants, scale=constants.scale * run.seconds / predicted_seconds(run, constants))
