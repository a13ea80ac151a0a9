"""How sure it is that a suspect between nodes is at fault: a bound on the chance that a healthy part looks like it."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gpuops.isolation.fabric import Fabric
from gpuops.isolation.levels import level_alone
from gpuops.isolation.parts import Part, PartKind
from gpuops.isolation.readings import FigureKind, Reading, Readings, kind_of, upper_quartile
from gpuops.isolation.slow_nodes import SlowNodes
from gpuops.isolation.spread import Certainty, Spread, bound, failure_log_e, log_e_needed, usual_share

_Values = dict[tuple[int, FigureKind], list[float]]


class Certainties:
    """The certainty of suspects, from the spread of all parts of the same kind in ``readings``.

    ``is_explained`` returns True if a suspect explains a reading, except the suspect given as its second argument.
    What ``slow_nodes`` explain counts for no part but the nodes.
    """

    def __init__(
        self, readings: Readings, slow_nodes: SlowNodes, is_explained: Callable[[Reading, Part | None], bool]
    ) -> None:
        self._readings = readings
        self.slow_nodes = slow_nodes
        self._fabric = readings.fabric
        self._is_explained = is_explained
        self._certainties: dict[Part, Certainty] = {}
        self._values: dict[PartKind, dict[FigureKind, list[float]]] = {}
        self._spreads: dict[tuple[PartKind, FigureKind], Spread] = {}

    def of(self, part: Part) -> Certainty:
        """Return how sure it is that ``part`` is slow or fails; readings that another suspect explains do not count."""
        if part not in self._certainties:
            self._certainties[part] = self._certainty(part)
        return self._certainties[part]

    def _certainty(self, part: Part) -> Certainty:
        readings = [r for r in self._readings.of(part) if _is_between(r) and self._readings.is_evidence(part.kind, r)]
        if part.kind == "leaf":
            readings = self._of_several_ports(part, readings)
        own = [r for r in readings if r.ratio and self._counts_for(part, r)]
        failed = [r for r in readings if not r.ratio and not self._is_explained(r, part)]
        if failed:
            return self._of_failures(failed, readings)
        if part.kind == "nic":
            own = self._without_slow_paths(part, own)
        values = _by_round(own, self._fabric, self._level(part))
        shared = _by_round([r for r in own if not self._is_set_aside(r)], self._fabric, 1.0)
        kinds = {kind for _, kind in values}
        certainties = [self._of_kind(part.kind, kind, values, shared) for kind in kinds]
        if not certainties:
            return Certainty(0.0, 0.0, 1.0, 0)
        best = max(certainties, key=lambda certainty: certainty.rounds)
        total = sum(certainty.log_e for certainty in certainties)  # e-values of separate rounds multiply
        return Certainty(total, best.slow_by, best.slow_share, sum(certainty.rounds for certainty in certainties))

    def _level(self, part: Part) -> float:
        """Return what a healthy part reaches in its place, as a fraction of the level of all."""
        if part.kind == "uplink":
            return level_alone(part, self._readings)
        return self._readings.leaf_level(part) if part.kind == "nic" else 1.0

    def _without_slow_paths(self, part: Part, own: Sequence[Reading]) -> list[Reading]:
        """Return the readings of a NIC, those of a pair that is always slow once: that may be the path of this pair.

        A NIC that was never healthy keeps all of them: then it is the NIC.
        """
        by_pair: dict[frozenset[str], list[Reading]] = {}
        for reading in own:
            by_pair.setdefault(frozenset(reading.figure.group.nodes), []).append(reading)
        slow = {pair for pair, readings in by_pair.items() if all(map(self._readings.is_slow, readings))}
        if not any(r.at_line_rate >= 1 - self._readings.tolerance for r in self._readings.of(part) if _is_between(r)):
            return list(own)
        return [r for pair, readings in by_pair.items() for r in (readings[:1] if pair in slow else readings)]

    def _of_several_ports(self, leaf: Part, readings: Sequence[Reading]) -> list[Reading]:
        """Return the readings of rounds that tested several pairs of the leaf; one tells of a suspect behind it."""
        pairs = Counter(reading.round_index for reading in readings)
        least = min(2, self._readings.width(leaf) // 2)
        return [reading for reading in readings if pairs[reading.round_index] >= least]

    def _counts_for(self, part: Part, reading: Reading) -> bool:
        """Return True unless another suspect explains the reading, or the spine hid what the part can do."""
        if part.kind != "node" and self.slow_nodes.explain(reading):
            return False
        if self._readings.is_slow(reading):
            return not self._is_explained(reading, part)
        return part.kind == "uplink" or reading.at_line_rate >= 1 - self._readings.tolerance

    def probability(self, part: Part, certainty: Certainty) -> float:
        """Return the bound on the chance, for the whole run, that any healthy part of this kind looks like ``part``."""
        return bound(certainty.log_e, self._count(part.kind))

    def _is_set_aside(self, reading: Reading) -> bool:
        """Return True if it does not tell how healthy parts scatter: a suspect explains it."""
        is_slow = self._readings.is_slow(reading)
        return self.slow_nodes.explain(reading) or (is_slow and self._is_explained(reading, None))

    def _of_kind(self, part_kind: PartKind, kind: FigureKind, values: _Values, shared: _Values) -> Certainty:
        """Return the certainty from the values of one kind, of which ``shared`` are among those of all parts."""
        own = [_shown(figures) for (_, figure_kind), figures in values.items() if figure_kind == kind]
        known = [_shown(figures) for (_, figure_kind), figures in shared.items() if figure_kind == kind]
        spread = self._spread(part_kind, kind).without(known)
        certainty = spread.certainty(own)
        if part_kind != "uplink":
            return certainty
        busy = log_e_needed(
            1.0, self._count(part_kind)
        )  # no such number of links carries others' traffic in all rounds
        return replace(certainty, log_e=min(certainty.log_e, spread.steadiness(own) + busy))

    def _of_failures(self, failed: Sequence[Reading], readings: Sequence[Reading]) -> Certainty:
        """Return the certainty of a part all of whose transfers fail in some rounds."""
        rounds = {reading.round_index for reading in readings}
        failed_rounds = {r.round_index for r in failed} - {r.round_index for r in readings if r.ratio}
        unexplained, count = self._failures
        usual = usual_share(max(0, unexplained - len(failed)), max(1, count - len(readings)))
        log_e = failure_log_e(len(failed_rounds), len(rounds), usual)
        return Certainty(log_e, 1.0, len(failed_rounds) / len(rounds), len(rounds))

    @functools.cached_property
    def _failures(self) -> tuple[int, int]:
        """The number of failed results that no suspect explains, and of all results between nodes."""
        between = self._readings.between
        return sum(not r.ratio and not self._is_explained(r, None) for r in between), len(between)

    def _count(self, kind: PartKind) -> int:
        fabric = self._fabric
        counts = {
            "leaf": len(fabric.ports_of),
            "uplink": len(fabric.units) * len(fabric.rails),
            "nic": len(fabric.rates),
        }
        return max(1, counts.get(kind, len(fabric.nodes)))

    def _spread(self, part_kind: PartKind, kind: FigureKind) -> Spread:
        """Return the spread of one kind of result over the parts of a kind."""
        if (part_kind, kind) not in self._spreads:
            if part_kind not in self._values:
                self._values[part_kind] = self._healthy_values(part_kind)
            similar = self._spread("nic", (*kind[:-1], False)) if part_kind == "uplink" else None
            self._spreads[part_kind, kind] = Spread(self._values[part_kind].get(kind, ()), similar=similar)
        return self._spreads[part_kind, kind]

    def _healthy_values(self, part_kind: PartKind) -> dict[FigureKind, list[float]]:
        """Return what the parts of a kind show in each round, without what a suspect explains.

        A result counts once, not once for each member.
        """
        values_by_kind: dict[FigureKind, list[float]] = {}
        for (figure_kind, *_), figures in self._grouped(part_kind).items():
            values_by_kind.setdefault(figure_kind, []).append(_shown(figures))
        return values_by_kind

    def _grouped(self, kind: PartKind) -> dict[tuple[FigureKind, int, object], list[float]]:
        grouped: dict[tuple[FigureKind, int, object], list[float]] = {}
        for reading in self._readings.between:
            if not reading.ratio or not self._readings.is_evidence(kind, reading):
                continue
            if self._is_set_aside(reading):
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


def _by_round(readings: Iterable[Reading], fabric: Fabric, level: float) -> _Values:
    values: _Values = {}
    for reading in readings:
        key = (reading.round_index, kind_of(reading.figure.group, fabric))
        values.setdefault(key, []).append(math.log(reading.ratio / level))
    return values


def _shown(values: Sequence[float]) -> float:
    """Return what a part shows in a round: all results pass it, so the better ones tell."""
    return upper_quartile(sorted(values))


def rounds_to_decide(certainty: Certainty, log_needed: float) -> int | None:
    """Return how many more rounds would decide at the present rate; None if the evidence does not grow."""
    if certainty.log_e <= 0 or not certainty.rounds:
        return None
    return max(1, math.ceil((log_needed - certainty.log_e) * certainty.rounds / certainty.log_e))


def more_rounds(count: int | None) -> str:
    """Return the number of further rounds in words; None if it is unknown."""
    return "more rounds" if count is None else f"about {count} more round{'s' * (count > 1)}"
