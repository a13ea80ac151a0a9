"""Suspicion: which parts explain the slow figures; a bottleneck model of group testing.

A transfer is as fast as the worst part that it passes, so the best that a part was part of is a proof of how good it
is at least. Parts that were proved healthy once are acquitted, whatever else slowed them. Of the others, those that
many transfers share are tried first; what they explain accuses nobody behind them. What nobody explains is contention.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuops.isolation.evidence import Evidence
from gpuops.isolation.parts import KINDS, Part, parts_of
from gpuops.isolation.readings import Like, Reading, Readings, like

ROUNDS_TO_ACCUSE = 4
"""In so many rounds a part must be slow, and never well: other tenants' traffic does not last as long."""
ROUNDS_TO_ACCUSE_UNMAPPED = 5
"""Without its leaf, a NIC is also slow for what its neighbours share; one round more with other partners."""
ROUNDS_TO_ACCUSE_OF_A_HANG = 2
"""Nothing that passes makes a healthy part hang."""
_MANY = 3
_LUCKY_SHARE = 1 / 8
"""Of many readings of one part so many may be better than it is, for noise."""
_LIKELY_SHARE = 1 / 4
"""A leaf or rail of a unit is tried where so many of its ports were slow in one round."""


@dataclass(frozen=True)
class Charge:
    """A part that is at fault unless another round acquits it. ``level`` is the share of speed that it leaves.

    ``readings`` are those that no other charge explains; ``alternatives`` are parts that explain each of them as well.
    """

    part: Part
    level: float
    readings: tuple[Reading, ...]
    alternatives: tuple[Part, ...] = ()

    @property
    def rounds(self) -> int:
        """In how many rounds it was slow."""
        return len({reading.at for reading in self.readings})


@dataclass(frozen=True)
class Suspicion:
    """All that the evidence says of pairs and nodes: confirmed charges, those that need more rounds, and the rest.

    ``shared`` are NICs of one rail that are slow alike: too many to be at fault each by itself, where no leaf is known.
    ``unexplained`` were slow though every part that they passed is well, or may be.
    """

    readings: Readings
    confirmed: tuple[Charge, ...]
    open: tuple[Charge, ...]
    shared: tuple[tuple[Charge, ...], ...]
    unexplained: tuple[Reading, ...]


@dataclass(frozen=True)
class _Candidate:
    part: Part
    level: float
    near: tuple[Reading, ...]
    """The readings that the part alone would explain: slow, and about as good as its best."""


def suspect(evidence: Evidence) -> Suspicion:
    """Try every part that slow figures passed."""
    readings = Readings(evidence)
    charges = _with_alternatives(_charges(readings), readings)
    sure = [charge for charge in charges if charge.rounds >= _rounds_needed(charge, readings)]
    shared = tuple(_shared(charges, readings))
    of_many = {charge.part for alike in shared for charge in alike}
    return Suspicion(
        readings,
        tuple(charge for charge in sure if charge.part not in of_many),
        tuple(charge for charge in charges if charge not in sure and charge.part not in of_many),
        shared,
        tuple(r for r in readings.slow if not any(_explains(charge, r, readings) for charge in charges)),
    )


def _shared(charges: Sequence[Charge], readings: Readings) -> Iterator[tuple[Charge, ...]]:
    """NICs whose leaves are not known, where many of one rail leave the same share of speed."""
    rails: dict[int, list[Charge]] = {}
    for charge in sorted(charges, key=lambda charge: charge.level):
        part = charge.part
        if part.kind == "nic" and (part.owner, part.number) not in readings.fabric.leaf_of:
            rails.setdefault(part.number, []).append(charge)
    for alike in rails.values():
        while alike:
            near = [charge for charge in alike if charge.level <= alike[0].level + 2 * readings.tolerance]
            del alike[: len(near)]
            if len(near) >= _MANY:
                yield tuple(near)


def _rounds_needed(charge: Charge, readings: Readings) -> int:
    if charge.level == 0:
        return ROUNDS_TO_ACCUSE_OF_A_HANG
    mapped = charge.part.kind != "nic" or (charge.part.owner, charge.part.number) in readings.fabric.leaf_of
    return ROUNDS_TO_ACCUSE if mapped else ROUNDS_TO_ACCUSE_UNMAPPED


def _charges(readings: Readings) -> list[tuple[Charge, list[_Candidate]]]:
    candidates = [c for part in _named(readings) if (c := _candidate(part, readings)) is not None]
    candidates.sort(key=lambda candidate: (KINDS.index(candidate.part.kind), candidate.level))
    charged: list[_Candidate] = []
    for candidate in candidates:
        if _is_evidence(_own(candidate, charged, readings), candidate):
            charged.append(candidate)
    for candidate in sorted(charged, key=lambda candidate: len(candidate.near)):
        others = [other for other in charged if other is not candidate]
        if not _is_evidence(_own(candidate, others, readings), candidate):
            charged.remove(candidate)
    return [
        (Charge(c.part, c.level, _own(c, [other for other in charged if other is not c], readings)), candidates)
        for c in charged
    ]


def _own(candidate: _Candidate, charged: Iterable[_Candidate], readings: Readings) -> tuple[Reading, ...]:
    """The readings near the candidate's level that none of ``charged`` explains."""
    others = list(charged)
    return tuple(r for r in candidate.near if not any(_explains(other, r, readings) for other in others))


def _is_evidence(own: Sequence[Reading], candidate: _Candidate) -> bool:
    """Whether readings that nothing else explains are more than chance; of a node, all that it does must be slow."""
    if candidate.part.kind == "node" and all(len(reading.figure.group.nodes) == 1 for reading in own):
        return False
    return len(own) >= max(1 if len(candidate.near) < 4 else 2, len(candidate.near) * _LUCKY_SHARE)


def _named(readings: Readings) -> Iterator[Part]:
    """The parts that slow figures passed; of those that many ports share, only where many of these are slow."""
    fabric = readings.fabric
    counts = Counter((part, reading.at) for reading in readings.slow for part in parts_of(reading.figure.group, fabric))
    sizes = {"leaf": fabric.ports_of, "uplink": fabric.units}
    likely = {
        part
        for (part, _), count in counts.items()
        if part.kind not in sizes or count >= _LIKELY_SHARE * len(sizes[part.kind][part.owner]) / 2
    }
    yield from sorted(likely)


def _candidate(part: Part, readings: Readings) -> _Candidate | None:
    """The part, unless it was proved healthy."""
    known = readings.of(part)
    alike: dict[Like, list[float]] = {}
    for reading in known:
        alike.setdefault(like(reading.figure.group, readings.fabric), []).append(_worth(part, reading))
    best = max(map(_lucky, alike.values()), default=1.0)
    if best >= 1 - readings.tolerance:
        return None
    worths = (worth for values in alike.values() for worth in values)
    level = statistics.median(worth for worth in worths if worth >= best * (1 - readings.tolerance))
    edge = level * (1 - 2 * readings.tolerance)
    near = tuple(r for r in known if readings.is_slow(r) and _worth(part, r) >= edge)
    return _Candidate(part, level, near)


def _lucky(values: Sequence[float]) -> float:
    """The best of ``values``, but of many the best that is not for luck."""
    return sorted(values, reverse=True)[math.ceil(len(values) * _LUCKY_SHARE) - 1]


def _worth(part: Part, reading: Reading) -> float:
    """How good the reading proves the part to be. What joins units is shared by all that cross, as its like are."""
    return reading.share if part.kind == "uplink" else reading.line


def _explains(charge: Charge | _Candidate, reading: Reading, readings: Readings) -> bool:
    """Whether the reading is no worse than the charge's part makes it."""
    as_bad = charge.level == 0 or reading.share >= charge.level * (1 - readings.tolerance)
    return as_bad and charge.part.passed_by(reading.figure, readings.fabric)


def _with_alternatives(tried: Iterable[tuple[Charge, list[_Candidate]]], readings: Readings) -> list[Charge]:
    charges = list(tried)
    charged = {charge.part for charge, _ in charges}
    found = []
    for charge, candidates in charges:
        others = (candidate.part for candidate in candidates if candidate.part not in charged)
        same = (p for p in others if all(p.passed_by(r.figure, readings.fabric) for r in charge.readings))
        found.append(Charge(charge.part, charge.level, charge.readings, tuple(same)))
    return found
