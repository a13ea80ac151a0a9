"""Leaves and NICs that are a little slow in every round: too little for one result to show, but not for all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence

from gpuops.isolation.certainty import Certainties
from gpuops.isolation.parts import Part, PartKind
from gpuops.isolation.readings import Reading, Readings, upper_quartile
from gpuops.isolation.spread import LEAST

_ROUNDS = 3
_DEVIATIONS = 3
"""Of the mean: only such parts are worth the computation of an e-value."""
_LIKELIER = math.log(20)


def mild_leaves(readings: Readings, certainties: Certainties) -> Iterator[tuple[Part, float]]:
    """Yield leaves that are 20 times likelier slow than healthy, with the level that their better transfers reach.

    What is much slower is not the leaf's: any of its transfers would show it.
    """
    least = 1 - 2 * readings.tolerance
    for part, every in _readings_by_part("leaf", readings, certainties).items():
        own = [reading for reading in every if reading.ratio >= least]
        level = upper_quartile(sorted(reading.ratio for reading in own)) if own else 1.0
        if _may_be_slow(level, own, readings) and certainties.of(part).log_e > _LIKELIER:
            yield part, level


def mild_nics(
    readings: Readings, certainties: Certainties, excluded: Collection[Part]
) -> Iterator[tuple[Part, float, tuple[Reading, ...]]]:
    """Yield NICs that are 20 times likelier slow than healthy, with the level and the readings that show it."""
    for part, own in sorted(_readings_by_part("nic", readings, certainties).items()):
        leaf = Part("leaf", readings.fabric.leaf_of[part.owner, part.number])
        level = _level(own)
        is_excluded = part in excluded or leaf in excluded
        relative = level / readings.leaf_level(part)
        if not is_excluded and _may_be_slow(relative, own, readings) and certainties.of(part).log_e > _LIKELIER:
            yield part, level, tuple(own)


def _level(own: Sequence[Reading]) -> float:
    """Return the median over partners: a suspect is measured most often with a partner with which it was slow."""
    by_partner: dict[frozenset[str], list[float]] = {}
    for reading in own:
        by_partner.setdefault(frozenset(reading.figure.group.nodes), []).append(reading.ratio)
    return statistics.median(map(statistics.median, by_partner.values()))


def _readings_by_part(kind: PartKind, readings: Readings, certainties: Certainties) -> Mapping[Part, list[Reading]]:
    """Return the readings of each leaf, or of each NIC with a known leaf, that tell what it can do."""
    leaf_of, by_part = readings.fabric.leaf_of, dict[Part, list[Reading]]()
    for reading in readings.between:
        rail = reading.figure.group.rail
        is_evidence = readings.is_evidence(kind, reading) and not certainties.slow_nodes.explain(reading)
        if rail is not None and reading.ratio and is_evidence:
            ports = [(node, rail) for node in reading.figure.group.nodes if (node, rail) in leaf_of]
            for part in {Part(kind, leaf_of[port]) if kind == "leaf" else Part(kind, *port) for port in ports}:
                by_part.setdefault(part, []).append(reading)
    return by_part


def _may_be_slow(level: float, own: Sequence[Reading], readings: Readings) -> bool:
    if len({reading.round_index for reading in own}) < _ROUNDS:
        return False
    return level < 1 - LEAST - _DEVIATIONS * readings.deviation / math.sqrt(len(own))
