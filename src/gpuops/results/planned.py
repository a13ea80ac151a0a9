"""Scores, calibrations and pipeline schedules of the planner, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from gpuops.reasons import Conclusion, FailOn, Result

if TYPE_CHECKING:
    from gpuops.planner.calibration import Calibration
    from gpuops.planner.pipeline import Schedule
    from gpuops.planner.scoring import Score


class ScoredWay(NamedTuple):
    """The score of one choice of constants, and what these have seen."""

    about: str
    score: Score


@dataclass(frozen=True)
class PlanScores(Result):
    """Scores of the planner on a table of runs, the headline first; ``unknown_columns`` of the table were not read."""

    table: str
    ways: tuple[ScoredWay, ...]
    unknown_columns: tuple[str, ...] = ()

    @property
    def headline(self) -> Score:
        """The score with the constants that were asked for."""
        return self.ways[0].score

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``incomplete`` if no row could be scored."""
        return "ok" if self.headline.scored else "incomplete"

    def to_document(self) -> dict[str, Any]:
        """Return the headline as plain data, with the keys that other programs score the same table with."""
        score = self.headline
        return {
            "schema": "gpuops.plan-score/1",
            "rows": score.rows,
            "scored": score.scored,
            "skipped": [{"id": each.id, "reason": each.reason} for each in score.skipped],
            **_errors(score),
            "predictions": [each._asdict() for each in score.predictions],
            "unknown_columns": list(self.unknown_columns),
        }


@dataclass(frozen=True)
class CalibrationResult(Result):
    """A calibration by a table of runs; ``unseen`` is the score of runs that were left out of it one by one."""

    SCHEMA: ClassVar[str] = "gpuops.plan-calibration/1"
    table: str
    calibration: Calibration
    before: Score
    after: Score
    unseen: Score | None
    gpus: tuple[str, ...]
    unknown_columns: tuple[str, ...] = ()

    @property
    def helps(self) -> bool:
        """True unless runs that the calibration has not seen are predicted worse than without it."""
        return self.unseen is None or self.unseen.mape <= self.before.mape

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` if the calibration does not help, ``incomplete`` if there is no run for it."""
        if not self.before.scored:
            return "incomplete"
        return "ok" if self.helps else "failed"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON: errors in percent, and the changed constants by name."""
        return {
            "schema": self.SCHEMA,
            "runs": self.before.scored,
            "skipped": [{"id": each.id, "reason": each.reason} for each in self.before.skipped],
            "before": _errors(self.before),
            "after": _errors(self.after),
            "left_out": _errors(self.unseen) if self.unseen else None,
            "constants": self.calibration.values,
            "factors": dict(self.calibration.factors),
            "unknown_columns": list(self.unknown_columns),
        }


def _errors(score: Score) -> dict[str, float | None]:
    known = score.scored > 0
    return {
        "mape": score.mape if known else None,
        "median": score.median if known else None,
        "spearman": score.spearman,
        "regret": score.regret,
        "kendall": score.kendall,
    }


def schedule_document(schedule: Schedule) -> dict[str, Any]:
    """Return a simulated step as plain data: seconds, and every pass of each stage in its order."""
    return {
        "schema": "gpuops.pipeline-schedule/1",
        "schedule": schedule.kind,
        "pp": schedule.stages,
        "chunks": schedule.micro_batches,
        "vpp": schedule.chunks_per_stage,
        "seconds": schedule.seconds,
        "busy_seconds": schedule.busy_seconds,
        "bubble": schedule.seconds / schedule.busy_seconds - 1,
        "idle_fraction": schedule.idle_fraction,
        "most_in_flight": schedule.most_in_flight,
        "stages": [
            [
                {"micro_batch": e.task.micro_batch, "chunk": e.task.chunk, "is_forward": e.task.is_forward,
                 "start": e.start, "end": e.end}
                for e in events
            ]
            for events in schedule.events
        ],
    }  # fmt: skip
