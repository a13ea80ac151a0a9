"""One operation at many sizes, between nodes or within each: the curves, and their crossovers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

from gpuops.bandwidth import ExpectedBandwidth, Operation
from gpuops.collective.crossover import Crossover, crossover_of
from gpuops.collective.engines import Curve, Point
from gpuops.collective.measurement import excluded_document, nodes_by_setting
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.isolation.rounds import RankGroup
from gpuops.reasons import Conclusion, Excluded, FailOn, Result
from gpuops.secret import redact

SweepScope = Literal["node", "group"]
"""Within each node, or between all nodes together."""


@dataclass(frozen=True)
class SweepResult(Result):
    """The curves of a sweep: one for all nodes together, or one for each node.

    ``nodes`` took part to the end. ``expected`` is the bus bandwidth that a group should reach at its largest size,
    without groups of which it is unknown. The other fields are those of `gpuops.collective.measurement.Measurement`.
    """

    SCHEMA: ClassVar[str] = "gpuops.sweep/1"

    operation: Operation
    scope: SweepScope
    engine: str
    engine_why: str = ""
    nodes: Sequence[str] = ()
    curves: Sequence[Curve] = ()
    excluded: Mapping[str, Excluded] = field(default_factory=dict)
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failures: Sequence[NetworkFailure] = ()
    expected: Mapping[RankGroup, ExpectedBandwidth] = field(default_factory=dict, repr=False)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def complete(self) -> list[Curve]:
        """The curves without trouble."""
        return [curve for curve in self.curves if not curve.trouble]

    def conclusion(self, fail_on: FailOn = "fail") -> Conclusion:  # noqa: ARG002 - every result has it
        """Return ``failed`` for wrong sums or a failed network test, ``incomplete`` if a curve is not complete."""
        if self.interrupted:
            return "interrupted"
        if self.failures or any(curve.trouble == "wrong" for curve in self.curves):
            return "failed"
        return "ok" if self.curves and len(self.complete) == len(self.curves) and not self.excluded else "incomplete"

    def to_document(self) -> dict[str, Any]:
        """Return plain data for JSON, with secrets masked; times are in microseconds, as nccl-tests prints them."""
        return {
            "schema": self.SCHEMA,
            "operation": self.operation,
            "scope": self.scope,
            "engine": {"name": self.engine, "why": redact(self.engine_why)},
            "settings": [
                {"setting": redact(words), "nodes": nodes} for words, nodes in nodes_by_setting(self.settings).items()
            ],
            "nodes": list(self.nodes),
            "excluded": excluded_document(self.excluded),
            "curves": [self._curve(curve) for curve in self.curves],
            "interrupted": self.interrupted,
        }

    def _curve(self, curve: Curve) -> dict[str, Any]:
        crossover, expected = crossover_of(curve.points), self.expected.get(curve.sweep.group)
        return {
            "nodes": list(curve.sweep.group.nodes),
            "points": [_point(point) for point in curve.points],
            "trouble": curve.trouble,
            "absent": list(curve.absent),
            "detail": redact(curve.detail),
            "crossover": _crossover(crossover) if crossover else None,
            "expected": asdict(expected) if expected else None,
        }


def _point(point: Point) -> dict[str, Any]:
    return {
        "size_bytes": point.size_bytes,
        "time_us": point.seconds * 1e6,
        "algbw_gb_per_s": point.algbw_gb_per_s,
        "busbw_gb_per_s": point.gb_per_s,
        "spread": point.spread,
        "algorithm": point.algorithm,
    }


def _crossover(crossover: Crossover) -> dict[str, Any]:
    fit = crossover.fit
    return {
        "peak_busbw_gb_per_s": crossover.peak_gb_per_s,
        "peak_size_bytes": crossover.peak_size_bytes,
        "is_peak_reached": crossover.is_peak_reached,
        "half_size_bytes": crossover.half_size_bytes,
        "fit": fit
        and {
            "alpha_us": fit.alpha_seconds * 1e6,
            "algbw_gb_per_s": fit.algbw_gb_per_s,
            "half_size_bytes": fit.half_size_bytes,
            "error": fit.error,
        },
    }


def typical(curves: Sequence[Curve]) -> list[Point]:
    """Return the median point of each size that all ``curves`` have; with one curve, its own points."""
    if len(curves) < 2:
        return [point for curve in curves for point in curve.points]
    by_size: dict[int, list[Point]] = {}
    for point in (point for curve in curves for point in curve.points):
        by_size.setdefault(point.size_bytes, []).append(point)
    shared = {size: points for size, points in by_size.items() if len(points) == len(curves)}
    return [_median(size, shared[size]) for size in sorted(shared)]


def _median(size_bytes: int, points: Sequence[Point]) -> Point:
    seconds = statistics.median(point.seconds for point in points)
    rate = statistics.median(point.gb_per_s for point in points)
    return Point(size_bytes, seconds, rate, algorithm=statistics.mode(point.algorithm for point in points))
