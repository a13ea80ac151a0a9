"""Text reports of scores and calibrations: errors by choice of constants, and which rows were not used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuops.errors import format_count
from gpuops.planner.calibration import Calibration
from gpuops.planner.published import Skipped
from gpuops.planner.scoring import Prediction, Score
from gpuops.report.page import Page, clean
from gpuops.results.planned import CalibrationResult, PlanScores

_HEADINGS = ("runs", "MAPE", "median", "Spearman", "regret", "Kendall")
_LEGEND = (
    "MAPE and median are of the errors of the step time, Spearman is of TFLOP/s per GPU. Regret is how much slower the "
    "layout is that would be chosen; it and Kendall count only where nothing but the layout changed."
)
_MOST_REASONS, _MOST_WORST, _MOST_MOVED = 10, 5, 6
_MOST_ROWS = 3


def lines(scores: PlanScores, page: Page) -> Iterator[str]:
    """Yield the score with each choice of constants, the largest errors, and why rows were not scored."""
    headline = scores.headline
    yield from page.labelled("", _heading(scores.table, headline), 0)
    if headline.scored:
        yield ""
        yield from page.columns([("constants", *_HEADINGS), *((w.about, *_figures(w.score)) for w in scores.ways)])
        yield ""
        yield from page.labelled("", _LEGEND, 0)
        yield ""
        yield f"largest errors, constants {scores.ways[0].about}:"
        yield from page.columns([_prediction(each) for each in _worst(headline.predictions)])
    yield from _skipped(headline.skipped, page)
    yield from _unknown(scores.unknown_columns, page)


def calibrated_lines(result: CalibrationResult, page: Page) -> Iterator[str]:
    """Yield the errors before and after a calibration, and what it changed."""
    yield from page.labelled("", _heading(result.table, result.before), 0)
    if result.before.scored:
        yield ""
        rows = [("before", *_figures(result.before)), ("after", *_figures(result.after))]
        rows += [("runs left out one by one", *_figures(result.unseen))] if result.unseen else []
        yield from page.columns([("", *_HEADINGS), *rows])
        yield ""
        yield from page.labelled("", _advice(result), 0)
        yield ""
        factors = ", ".join(f"{result.calibration.factors[gpu]:.3g} on {gpu}" for gpu in result.gpus)
        yield from page.labelled("", f"factors: {factors}", 0)
        yield from page.labelled("", f"changed most: {_moved(result)}", 0)
    yield from _skipped(result.before.skipped, page)
    yield from _unknown(result.unknown_columns, page)


def calibration_about(result: CalibrationResult) -> str:
    """Return what a calibration file says about itself in its first line."""
    errors = f"error {result.before.mape:.1f} % before, {result.after.mape:.1f} % after"
    unseen = f", {result.unseen.mape:.1f} % for runs left out" if result.unseen else ""
    return clean(f"gpuops plan calibrate {result.table}: {format_count(result.before.scored, 'run')}, {errors}{unseen}")


def _heading(table: str, score: Score) -> str:
    return clean(f"{table}: {score.scored} of {format_count(score.rows, 'row')} can be used")


def _figures(score: Score) -> tuple[str, ...]:
    return (
        str(score.scored),
        f"{score.mape:.1f} %" if score.scored else "-",
        f"{score.median:.1f} %" if score.scored else "-",
        f"{score.spearman:.3f}" if score.spearman is not None else "-",
        f"{score.regret:.1f} %" if score.regret is not None else "-",
        f"{score.kendall:.2f}" if score.kendall is not None else "-",
    )


def _worst(predictions: Sequence[Prediction]) -> list[Prediction]:
    return sorted(predictions, key=lambda each: -abs(each.predicted_seconds / each.measured_seconds - 1))[:_MOST_WORST]


def _prediction(each: Prediction) -> tuple[str, ...]:
    error = each.predicted_seconds / each.measured_seconds - 1
    return (
        clean(each.id),
        f"measured {each.measured_seconds:.3g} s",
        f"predicted {each.predicted_seconds:.3g} s",
        f"{100 * error:+.0f} %",
    )


def _skipped(skipped: Sequence[Skipped], page: Page) -> Iterator[str]:
    if not skipped:
        return
    reasons = Counter(each.reason for each in skipped).most_common()
    yield ""
    yield f"{format_count(len(skipped), 'row')} not used:"
    for reason, count in reasons[:_MOST_REASONS]:
        rows = [each.id for each in skipped if each.reason == reason][:_MOST_ROWS]
        more = f" and {count - len(rows)} more" if count > len(rows) else ""
        yield from page.labelled("", clean(f"{', '.join(rows)}{more}: {reason}"), 2)
    if len(reasons) > _MOST_REASONS:
        yield f"and {format_count(len(reasons) - _MOST_REASONS, 'more reason')}; --json has all"


def _unknown(columns: Sequence[str], page: Page) -> Iterator[str]:
    if columns:
        yield ""
        about = "no column of a table of runs has this name; docs/planner.md lists them"
        yield from page.labelled("", clean(f"not read: {', '.join(columns)}: {about}"), 0)


def _advice(result: CalibrationResult) -> str:
    if result.unseen is None:
        return "There is one run, so none is left to check the calibration with."
    before, unseen = f"{result.before.mape:.1f} %", f"{result.unseen.mape:.1f} %"
    if result.helps:
        return f"A run that the calibration has not seen is predicted within {unseen} instead of {before}."
    return (
        f"The calibration does not help: runs that it has not seen are predicted within {unseen}, and without it "
        f"within {before}. These runs are too few, or differ in more than the model knows; do without it."
    )


def _moved(result: CalibrationResult) -> str:
    before, after = Calibration().values, result.calibration.values
    most = sorted(before, key=lambda name: -abs(after[name] / before[name] - 1))[:_MOST_MOVED]
    return ", ".join(f"{name} {before[name]:.3g} -> {after[name]:.3g}" for name in most)
