"""Suspicion: which parts explain the slow figures; a bottleneck model of group testing.

A transfer is as fast as the worst part that it passes, so the best that a part was part of is a proof of how good it
is at least. Parts that were proved healthy once are acquitted, whatever else slowed them. Of the others, those that
many transfers share are tried first; what they explain accuses nobody behind them. What nobody explains is contention.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_COMMON_SHARE = 1 / 10
"""Where more pairs than these are as slow, it is for what they cross: collisions are fewer."""
_LUCKY_SHARE = 1 / 8
"""Of many readings of one part so many may be better than it is, for noise."""
_LIKELY_SHARE = 1 / 3
"""A part with many ports is tried where so many of them were slow in one round; of pairs inside a leaf each has two."""


@dataclass(frozen=True, eq=False)
class Suspect:
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
class SuspectAnalysis:
    """All that the evidence says of pairs and nodes: confirmed charges, those that need more rounds, and the rest.

    ``shared`` are slow as others of the same rail are, where no leaf is known: what they share is at fault.
    ``unexplained`` pairs were slow though every part that they passed is well, or may be.
    """

    readings: Readings
    confirmed: tuple[Suspect, ...]
    open: tuple[Suspect, ...]
    shared: tuple[Suspect, ...]
    unexplained: tuple[Reading, ...]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A part that was not acquitted. ``near`` are the readings that it alone would explain: as good as its best.

    ``across``, of a leaf: the share that it leaves of what transfers between units give, where those are all below the
    line; all of it, if they are so for this leaf alone.
    """

    part: Part
    level: float
    near: tuple[Reading, ...]
    across: float = 0.0


def suspect(evidence: Evidence) -> SuspectAnalysis:
    """Try every part that slow figures passed."""
    readings = Readings(evidence)
    candidates = _candidates(readings)
    charged = _charged(candidates, readings)
    by_part = {candidate.part: candidate for candidate in candidates}
    charges = [_charge(candidate, charged, by_part, readings) for candidate in charged.values()]
    piles: dict[str, list[Suspect]] = {"sure": [], "open": [], "shared": []}
    for charge in charges:
        piles[_standing(charge, candidates, readings)].append(charge)
    sure, still_open, shared = (tuple(pile) for pile in piles.values())
    between = [reading for reading in readings.slow if len(reading.figure.group.nodes) > 1]
    unexplained = (r for r in between if not _is_explained(r, charged, readings))
    return SuspectAnalysis(readings, sure, still_open, shared, tuple(unexplained))


def _standing(charge: Suspect, candidates: Iterable[_Candidate], readings: Readings) -> str:
    if _is_shared(charge, candidates, readings):
        return "shared"
    return "sure" if charge.rounds >= _rounds_needed(charge, readings) else "open"


def _is_mapped(part: Part, readings: Readings) -> bool:
    """Whether it is known what the part shares with others."""
    if part.kind == "nic":
        return (part.owner, part.number) in readings.fabric.leaf_of
    return part.kind in {"leaf", "uplink"} or part.owner in readings.fabric.unit_of


def _is_shared(charge: Suspect, candidates: Iterable[_Candidate], readings: Readings) -> bool:
    """Whether, where no leaf is known, others on the same rails are as slow: the fault is not the part's alone."""
    part = charge.part
    if _is_mapped(part, readings):
        return False
    if part.kind == "together":
        return True
    near = 2 * readings.tolerance
    alike = sum(abs(r.line - charge.level) <= near for r in readings.slow if part.owner not in r.figure.group.nodes)
    if alike > _COMMON_SHARE * readings.transfers:
        return True
    rails = {
        candidate.part.number
        for candidate in candidates
        if candidate.part.kind == "nic"
        and candidate.part.owner != part.owner
        and candidate.part not in charge.alternatives
        and abs(candidate.level - charge.level) <= near
    }
    own = {part.number} if part.kind == "nic" else {nic.rail for nic in readings.fabric.nodes[part.owner].nics}
    return 2 * len(rails & own) >= len(own)


def _rounds_needed(charge: Suspect, readings: Readings) -> int:
    if not _is_mapped(charge.part, readings):
        return ROUNDS_TO_ACCUSE_UNMAPPED
    return ROUNDS_TO_ACCUSE if charge.level else ROUNDS_TO_ACCUSE_OF_A_HANG


def _candidates(readings: Readings) -> list[_Candidate]:
    """The parts that were not acquitted, in the order in which they are tried."""
    found = [c for part in _named(readings) if (c := _candidate(part, readings)) is not None]
    return sorted(found, key=lambda candidate: (KINDS.index(candidate.part.kind), candidate.level))


def _charged(candidates: Iterable[_Candidate], readings: Readings) -> dict[Part, _Candidate]:
    """Those that are needed to explain what is slow."""
    charged: dict[Part, _Candidate] = {}
    for candidate in candidates:
        own_node = charged.get(Part("node", candidate.part.owner))
        known = own_node is not None and _is_behind(candidate, own_node, readings)
        if not known and _is_evidence(_own(candidate, charged, readings), candidate):
            charged[candidate.part] = candidate
    for candidate in sorted(charged.values(), key=lambda candidate: len(candidate.near)):
        if not _is_evidence(_own(candidate, charged, readings), candidate):
            del charged[candidate.part]
    return charged


def _is_behind(candidate: _Candidate, node: _Candidate, readings: Readings) -> bool:
    """Whether all that is slow of a NIC is what its node makes so, but for noise."""
    return candidate.part.kind == "nic" and candidate.level >= node.level * (1 - readings.fine_tolerance)


def _charge(
    candidate: _Candidate,
    charged: Mapping[Part, _Candidate],
    candidates: Mapping[Part, _Candidate],
    readings: Readings,
) -> Suspect:
    own, fabric = _own(candidate, charged, readings), readings.fabric
    others = sorted(
        part for part in parts_of(own[0].figure.group, fabric) if part in candidates and part not in charged
    )
    same = (part for part in others if all(part.passed_by(reading.figure, fabric) for reading in own))
    return Suspect(candidate.part, candidate.level, own, tuple(same))


def _own(candidate: _Candidate, charged: Mapping[Part, _Candidate], readings: Readings) -> tuple[Reading, ...]:
    """The readings near the candidate's level that none of ``charged`` but itself explains."""
    return tuple(r for r in candidate.near if not _is_explained(r, charged, readings, but=candidate.part))


def _is_explained(
    reading: Reading, charged: Mapping[Part, _Candidate], readings: Readings, but: Part | None = None
) -> bool:
    passed = parts_of(reading.figure.group, readings.fabric) & charged.keys()
    return any(part != but and _explains(charged[part], reading, readings) for part in passed)


def _is_evidence(own: Sequence[Reading], candidate: _Candidate) -> bool:
    """Whether readings that nothing else explains are more than chance; of a node, all that it does must be slow."""
    if candidate.part.kind == "node" and all(len(reading.figure.group.nodes) == 1 for reading in own):
        return False
    near, is_nic = len(candidate.near), candidate.part.kind == "nic"
    if is_nic and not candidate.level:
        return bool(own)  # nothing that passes makes it hang
    return len(own) >= max(1 if near < 4 else 2, near * (_LIKELY_SHARE if is_nic else _LUCKY_SHARE))


def _named(readings: Readings) -> Iterator[Part]:
    """The parts that slow figures passed; of those that many ports share, only where many of these are slow."""
    fabric = readings.fabric
    counts = Counter((part, reading.at) for reading in readings.slow for part in parts_of(reading.figure.group, fabric))
    likely = {part for (part, _), count in counts.items() if count >= _LIKELY_SHARE * readings.width(part)}
    yield from sorted(likely)


def _candidate(part: Part, readings: Readings) -> _Candidate | None:
    """The part, unless it was proved healthy."""
    well = 1 - readings.tolerance
    if part.kind in {"nic", "together"} and any(reading.line >= well for reading in readings.of(part)):
        return None  # as below, for the many
    known = list(readings.of(part))
    alike: dict[Like, list[float]] = {}
    for reading in known:
        alike.setdefault(like(reading.figure.group, readings.fabric), []).append(_worth(part, reading))
    best = max(map(_lucky, alike.values()), default=1.0)
    if best >= well:
        return None
    close = 1 - min(readings.tolerance, 2 * readings.fine_tolerance)
    worths = (worth for values in alike.values() for worth in values)
    level = statistics.median(worth for worth in worths if worth >= best * close)
    edge = level * (1 - 2 * readings.tolerance)
    near = tuple(r for r in known if readings.is_slow(r) and r.share >= edge)
    across = [r.share for r in known if r.share > r.line] if part.kind == "leaf" else []
    return _Candidate(part, level, near, statistics.median(across) if across else 0.0)


def _lucky(values: Sequence[float]) -> float:
    """The best of ``values``, but of many the best that is not for luck."""
    return sorted(values, reverse=True)[math.ceil(len(values) * _LUCKY_SHARE) - 1]


def _worth(part: Part, reading: Reading) -> float:
    """How good the reading proves the part to be. What joins units is shared by all that cross, as its like are."""
    return reading.share if part.kind == "uplink" else reading.line


def _explains(candidate: _Candidate, reading: Reading, readings: Readings) -> bool:
    """Whether the reading is no worse than the candidate makes it."""
    if not candidate.part.passed_by(reading.figure, readings.fabric):
        return False
    fine = readings.fine_tolerance
    below_line = candidate.level > 0 and reading.share > reading.line
    least = max(candidate.level * (1 - fine), candidate.across * (1 - 2 * fine) if below_line else 0.0)
    return reading.share >= least
