"""Ways to hold predictions against measured runs: with priors, with constants that have not seen a run, or fitted ones.

What a calibration has seen it predicts better than what it has not, so each way says which runs it has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from gpuops.planner.calibration import calibrate, fit, fit_each
from gpuops.planner.published import PublishedRun, PublishedTable, Skipped
from gpuops.planner.scoring import Score, predicted_seconds, score

ConstantsKind = Literal["left-out", "publisher-left-out", "priors", "one-run", "fitted", "calibrated"]
Runs: TypeAlias = "Sequence[PublishedRun]"


class Predicted(NamedTuple):
    """The runs that a way scores, and their predicted seconds."""

    runs: Runs
    seconds: list[float]


def leave_one_out(runs: Runs, origin: Callable[[PublishedRun], str]) -> Predicted:
    """Return the seconds of each run, with constants fitted to the runs of all other sources, or other origins."""
    origins = sorted({origin(run) for run in runs})
    fits = fit_each([[run for run in runs if origin(run) != each] for each in origins])
    by_origin = dict(zip(origins, fits, strict=True))
    return Predicted(runs, [predicted_seconds(run, by_origin[origin(run)]) for run in runs])


def one_run_a_cluster(runs: Runs, seconds: Sequence[float]) -> Predicted:
    """Return all runs but one a cluster, with times corrected by that one: the run of each cluster with median error.

    An operator calibrates with a run of the usual kind, not with an outlier.
    """
    ratios: dict[str, list[tuple[float, int]]] = {}
    for index, (run, predicted) in enumerate(zip(runs, seconds, strict=True)):
        ratios.setdefault(run.fleet, []).append((run.seconds / predicted, index))
    chosen = {fleet: sorted(pairs)[(len(pairs) - 1) // 2] for fleet, pairs in ratios.items()}
    used = {index for fleet, (_, index) in chosen.items() if len(ratios[fleet]) > 1}
    kept = [index for index in range(len(runs)) if index not in used and len(ratios[runs[index].fleet]) > 1]
    return Predicted([runs[i] for i in kept], [seconds[i] * chosen[runs[i].fleet][0] for i in kept])


class Way(NamedTuple):
    """What the constants have seen, and the predictions with them."""

    about: str
    predict: Callable[[Runs], Predicted]


def _priors(runs: Runs) -> Predicted:
    return Predicted(runs, [predicted_seconds(run) for run in runs])


def _fitted(runs: Runs) -> Predicted:
    constants = fit(runs)
    return Predicted(runs, [predicted_seconds(run, constants) for run in runs])


def _calibrated(runs: Runs) -> Predicted:
    calibration = calibrate(runs)
    return Predicted(runs, [calibration.seconds(run) for run in runs])


WAYS: Mapping[ConstantsKind, Way] = {
    "left-out": Way("fitted without the source", lambda runs: leave_one_out(runs, lambda run: run.source)),
    "publisher-left-out": Way(
        "fitted without the publisher", lambda runs: leave_one_out(runs, lambda run: run.publisher)
    ),
    "priors": Way("priors, fitted to nothing", _priors),
    "one-run": Way("priors, one run a cluster", lambda runs: one_run_a_cluster(*_priors(runs))),
    "fitted": Way("fitted to these runs", _fitted),
    "calibrated": Way("fitted, a factor a GPU", _calibrated),
}
"""The first is the headline: no run is predicted with constants that have seen its source."""


def scored(runs: Runs, kind: ConstantsKind, skipped: Sequence[Skipped] = ()) -> Score:
    """Return how close the predictions of one way are; runs that calibrate it are skipped."""
    kept, seconds = WAYS[kind].predict(runs)
    ids = {run.id for run in kept}
    used = [Skipped(run.id, "it calibrates its cluster, or is the only run there") for run in runs if run.id not in ids]
    return score(kept, seconds, [*skipped, *used])


def scorable(table: PublishedTable, *, experts: bool = False) -> tuple[list[PublishedRun], list[Skipped]]:
    """Return the runs that can be scored, of dense models or of those with ``experts``, and all others with reasons."""
    runs, skipped = [], list(table.skipped)
    for run in table.runs:
        if why := _unscorable(run, experts=experts):
            skipped.append(Skipped(run.id, why))
        else:
            runs.append(run)
    return runs, skipped


def _unscorable(run: PublishedRun, *, experts: bool) -> str:
    if run.ran_out:
        return "it ran out of memory"
    if run.seconds <= 0:
        return "its time is not given"
    if bool(run.model.experts) != experts:
        return "its model is dense" if experts else "a mixture of experts: it is scored with --experts"
    return ""
