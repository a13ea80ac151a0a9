"""Scores and calibrations from tables of runs; no host is asked."""

from __future__ import annotations

from pathlib import Path

from gpuops.document import load, read_text
from gpuops.planner.calibration import Calibration, calibrate, left_out_seconds
from gpuops.planner.calibration_file import check_factors, read_calibration
from gpuops.planner.published import PublishedRun, read_table
from gpuops.planner.scoring import predicted_seconds, score
from gpuops.planner.validation import WAYS, ConstantsKind, scorable, scored
from gpuops.results.planned import CalibrationResult, PlanScores, ScoredWay


def score_table(
    path: Path, *, kind: ConstantsKind = "left-out", calibration: Path | None = None, experts: bool = False
) -> PlanScores:
    """Return how close the predictions for the runs in ``path`` are, first with the constants that ``kind`` names.

    With ``calibration``, the constants of that file count instead. Raise `DocumentError` or `LayoutError` for a file
    that cannot be read.
    """
    table = read_table(read_text(path), str(path))
    runs, skipped = scorable(table, experts=experts)
    if calibration:
        seconds = _seconds(runs, read_calibration(load(calibration)))
        ways = [ScoredWay(f"those of {calibration.name}", score(runs, seconds, skipped))]
        names: list[ConstantsKind] = ["priors"]
    else:
        ways, names = [], [kind, *(name for name in WAYS if name != kind)]
    ways += [ScoredWay(WAYS[name].about, scored(runs, name, skipped)) for name in names]
    return PlanScores(str(path), tuple(ways), table.unknown_columns)


def calibrate_by(path: Path) -> CalibrationResult:
    """Return the calibration by the runs of dense models in ``path``, with the errors before and after.

    Raise `DocumentError` or `LayoutError` for a file that cannot be read, or whose times cannot be seconds.
    """
    table = read_table(read_text(path), str(path))
    runs, skipped = scorable(table)
    fitted = calibrate(runs)
    check_factors(fitted, str(path))
    before, after = [predicted_seconds(run) for run in runs], _seconds(runs, fitted)
    unseen = score(runs, left_out_seconds(runs)) if len(runs) > 1 else None
    gpus = tuple(dict.fromkeys(run.cluster.gpu.name for run in runs))
    scores = (score(runs, before, skipped), score(runs, after, skipped), unseen)
    return CalibrationResult(str(path), fitted, *scores, gpus, table.unknown_columns)


def _seconds(runs: list[PublishedRun], calibration: Calibration) -> list[float]:
    return [calibration.seconds(run) for run in runs]
