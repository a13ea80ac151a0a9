"""How sure it is that a suspect between nodes is at fault: a bound on the chance that a healthy part looks like it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from gpuops.isolation.fabric import Fabric
from gpuops.isolation.parts import Part, PartKind
from gpuops.isolation.readings import FigureKind, Reading, Readings, kind_of, upper_quartile
from gpuops.isolation.spread import Certainty, Spread, bound, failure_log_e, usual_share

_Values = dict[tuple[int, FigureKind], list[float]]


class Certainties:
    """The certainty of suspects, from the spread of all parts of the same kind in ``readings``.

    ``is_explained`` returns True if a suspect explains a reading, except the suspect given as its second argument.
    """

    def __init__(self, readings: Readings, is_explained: Callable[[Reading, Part | None], bool]) -> None:
        self._readings = readings
        self._fabric = readings.fabric
        self._is_explained = is_explained
        self._spreads_by_kind: dict[PartKind, dict[FigureKind, Spread]] = {}

    def of(self, part: Part) -> Certainty:
        """Return how sure it is that ``part`` is slow or fails; readings that another suspect explains do not count."""
        readings = [r for r in self._readings.of(part) if _is_between(r)]
        own = [r for r in readings if r.ratio and self._counts_for(part, r)]
        failed = [r for r in readings if not r.ratio and not self._is_explained(r, part)]
        if failed:
            return self._of_failures(part, failed, readings)
        values = _by_round(own, self._fabric)
        kinds = {kind for _, kind in values}
        certainties = [self._of_kind(part.kind, kind, values) for kind in kinds]
        if not certainties:
            return Certainty(0.0, 0.0, 1.0, 0)
        best = max(certainties, key=lambda certainty: certainty.rounds)
        total = sum(certainty.log_e for certainty in certainties)  # e-values of separate rounds multiply
        return Certainty(total, best.slow_by, best.slow_share, sum(certainty.rounds for certainty in certainties))

    def _counts_for(self, part: Part, reading: Reading) -> bool:
        """Return True unless another suspect explains the reading, or the spine hid what the part can do."""
        if self._readings.is_slow(reading):
            return not self._is_explained(reading, part)
        return part.kind == "uplink" or reading.at_line_rate >= 1 - self._readings.tolerance

    def probability(self, part: Part, certainty: Certainty) -> float:
        """Return the bound on the chance, for the whole run, that any healthy part of this kind looks like ``part``."""
        return bound(certainty.log_e, self._count(part.kind))

    def _of_kind(self, part_kind: PartKind, kind: FigureKind, values: _Values) -> Certainty:
        own = [_shown(figures) for (_, figure_kind), figures in values.items() if figure_kind == kind]
        if part_kind not in self._spreads_by_kind:
            self._spreads_by_kind[part_kind] = self._spreads(part_kind)
        return self._spreads_by_kind[part_kind].get(kind, Spread(())).certainty(own)

    def _of_failures(self, part: Part, failed: Sequence[Reading], readings: Sequence[Reading]) -> Certainty:
        """Return the certainty of a part all of whose transfers fail in some rounds."""
        rounds = {reading.round_index for reading in readings}
        failed_rounds = {r.round_index for r in failed} - {r.round_index for r in readings if r.ratio}
        others = [r for r in self._readings.between if not part.crossed_by(r.figure, self._fabric)]
        usual = usual_share(sum(not r.ratio for r in others), len(others))
        log_e = failure_log_e(len(failed_rounds), len(rounds), usual)
        return Certainty(log_e, 1.0, len(failed_rounds) / len(rounds), len(rounds))

    def _count(self, kind: PartKind) -> int:
        fabric = self._fabric
        counts = {
            "leaf": len(fabric.ports_of),
            "uplink": len(fabric.units) * len(fabric.rails),
            "nic": len(fabric.rates),
        }
        return max(1, counts.get(kind, len(fabric.nodes)))

    def _spreads(self, kind: PartKind) -> dict[FigureKind, Spread]:
        """Return the spread of each kind of result over the parts of a kind, without what a suspect explains.

        A result counts once, not once for each member.
        """
        values_by_kind: dict[FigureKind, list[float]] = {}
        for (figure_kind, *_), figures in self._grouped(kind).items():
            values_by_kind.setdefault(figure_kind, []).append(_shown(figures))
        return {figure_kind: Spread(values) for figure_kind, values in values_by_kind.items()}

    def _grouped(self, kind: PartKind) -> dict[tuple[FigureKind, int, object], list[float]]:
        grouped: dict[tuple[FigureKind, int, object], list[float]] = {}
        for reading in self._readings.between:
            if not reading.ratio or (self._readings.is_slow(reading) and self._is_explained(reading, None)):
                continue
            figure_kind = kind_of(reading.figure.group, self._fabric)
            for owner in _owners(kind, reading, self._fabric):
                grouped.setdefault((figure_kind, reading.round_index, owner), []).append(math.log(reading.ratio))
        return grouped


def _owners(kind: PartKind, reading: Reading, fabric: Fabric) -> Iterable[object]:
    """Return what the reading counts for: the leaves, uplinks or nodes that it crosses, or itself for NICs."""
    group, rail = reading.figure.group, reading.figure.group.rail
    if rail is None:
        return group.nodes if kind == "node" else () if kind in {"leaf", "uplink"} else (group,)
    if kind == "leaf":
        return {leaf for node in group.nodes if (leaf := fabric.leaf_of.get((node, rail))) is not None}
    if kind == "uplink":
        units = {fabric.unit_of.get(node) for node in group.nodes}
        return {(unit, rail) for unit in units if unit is not None} if len(units) > 1 else ()
    return group.nodes if kind == "node" else (group,)


def _is_between(reading: Reading) -> bool:
    return len(reading.figure.group.nodes) > 1


def _by_round(readings: Iterable[Reading], fabric: Fabric) -> _Values:
    values: _Values = {}
    for reading in readings:
        key = (reading.round_index, kind_of(reading.figure.group, fabric))
        values.setdefault(key, []).append(math.log(reading.ratio))
    return values


def _shown(values: Sequence[float]) -> float:
    """Return what a part shows in a round: all results pass it, so the better ones tell."""
    return upper_quartile(sorted(values))


def rounds_to_decide(certainty: Certainty, log_needed: float) -> int | None:
    """Return how many more rounds would decide at the present rate; None if the evidence does not grow."""
    if certainty.log_e <= 0 or not certainty.rounds:
        return None
    return max(1, math.ceil((log_needed - certainty.log_e) * certainty.rounds / certainty.log_e))
