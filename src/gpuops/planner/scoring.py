"""How close the planner comes to measured runs: errors of the time and the order of layouts, calibrated or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def timed(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    """Return the runs whose time is known and that ran."""
    return [run for run in runs if run.seconds > 0 and not run.ran_out]


def dense(runs: Sequence[PublishedRun]) -> list[PublishedRun]:
    """Return the runs of models without experts."""
    return [run for run in runs if not run.model.experts]


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


def leave_one_source_out(
    runs: Sequence[PublishedRun], fit_each: Callable[[list[list[PublishedRun]]], list[Constants]]
) -> list[float]:
    """Return the seconds of each run, with constants fitted to the runs of all other sources."""
    sources = sorted({run.source for run in runs})
    fits = fit_each([[run for run in runs if run.source != source] for source in sources])
    by_source = dict(zip(sources, fits, strict=True))
    return [predicted_seconds(run, by_source[run.source]) for run in runs]


def one_run_a_cluster(runs: Sequence[PublishedRun], seconds: Sequence[float]) -> tuple[list[PublishedRun], list[float]]:
    """Return all runs but one a cluster, with times corrected by that one: the run of each cluster with median error.

    An operator calibrates with a run of the usual kind, not with an outlier.
    """
    ratios: dict[str, list[tuple[float, int]]] = {}
    for index, (run, predicted) in enumerate(zip(runs, seconds, strict=True)):
        ratios.setdefault(run.fleet, []).append((run.seconds / predicted, index))
    chosen = {fleet: sorted(pairs)[(len(pairs) - 1) // 2] for fleet, pairs in ratios.items()}
    used = {index for fleet, (_, index) in chosen.items() if len(ratios[fleet]) > 1}
    kept = [index for index in range(len(runs)) if index not in used and len(ratios[runs[index].fleet]) > 1]
    return [runs[i] for i in kept], [seconds[i] * chosen[runs[i].fleet][0] for i in kept]


def correct(constants: Constants, run: PublishedRun) -> Constants:
    """Return ``constants`` scaled so that ``run`` takes as long as it was measured: the calibration by one run."""
    return replace(constants, scale=constants.scale * run.seconds / predicted_seconds(run, constants))
