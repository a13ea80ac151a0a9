"""The parts that explain the slow results: a bottleneck model of group testing.

A transfer is as fast as the worst part that it crosses, so the best transfer over a part proves a minimum quality of
the part. A part that was once proved healthy is cleared, whatever else slowed its transfers. Of the others, parts that
many transfers share are tried first; what they explain blames no part behind them. A result that no part explains is
contention.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuops.isolation.certainty import Certainties
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.parts import KINDS, Part, parts_of
from gpuops.isolation.readings import FigureKind, Reading, Readings, kind_of
from gpuops.isolation.spread import Certainty

ROUNDS_TO_BLAME = 4
"""A part must be slow in this many rounds and never healthy: other tenants' traffic does not last as long."""
ROUNDS_TO_BLAME_UNMAPPED = 5
"""If its leaf is unknown, a NIC may be slow because of what its neighbours share: it takes another round."""
ROUNDS_TO_BLAME_OF_A_HANG = 2
"""No transient disturbance makes a healthy part hang."""
_ROUNDS_TO_SUSPECT = 2
_LIKELIER = math.log(4)
"""A NIC that was slow in some rounds only is measured again if a flapping one is this much likelier to show that."""
_COMMON_RATIO = 1 / 10
"""If more pairs than this are equally slow, the cause is what they cross: collisions are rarer."""
_LUCKY_RATIO = 1 / 8
"""Of many readings of one part, this fraction may be better than the part is, because of noise."""
_LIKELY_RATIO = 1 / 3
"""A part with many ports is tried if this fraction of them was slow in one round; a pair inside a leaf uses two."""


@dataclass(frozen=True, eq=False)
class Suspect:
    """A part that is suspected until another round clears it. ``level`` is the fraction of full speed that it allows.

    ``readings`` are those that no other suspect explains; ``alternatives`` are parts that explain each of them as well.
    ``probability`` bounds the chance, for the whole run, that a healthy part looks like this. One that ``flaps`` was
    healthy in some rounds.
    """

    part: Part
    level: float
    readings: tuple[Reading, ...]
    alternatives: tuple[Part, ...]
    certainty: Certainty
    probability: float
    flaps: bool = False

    @property
    def rounds(self) -> int:
        """The number of rounds in which it was slow."""
        return len({reading.round_index for reading in self.readings})


@dataclass(frozen=True)
class SuspectAnalysis:
    """The result for pairs and nodes: confirmed suspects, those that need more rounds, and the rest.

    ``shared`` suspects are as slow as others on the same rail, and no leaf is known: the fault is in what they share.
    ``unexplained`` pairs were slow although every part that they crossed is healthy, or may be.
    """

    readings: Readings
    confirmed: tuple[Suspect, ...]
    open: tuple[Suspect, ...]
    shared: tuple[Suspect, ...]
    unexplained: tuple[Reading, ...]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A part that was not cleared. ``near`` are the readings that it alone would explain: as good as its best.

    ``across``, of a leaf: the remaining fraction of what transfers between units reach, if those are all below the line
    rate; 1 if only this leaf's are.
    """

    part: Part
    level: float
    near: tuple[Reading, ...]
    across: float = 0.0


def find_suspects(evidence: Evidence) -> SuspectAnalysis:
    """Test every part that slow results crossed."""
    readings = Readings(evidence)
    candidates = _candidates(readings)
    selected = _select(candidates, readings)
    candidate_by_part = {candidate.part: candidate for candidate in candidates}
    certainties = Certainties(readings, lambda reading, but: _is_explained(reading, selected, readings, but))
    suspects_by_status: dict[str, list[Suspect]] = {"confirmed": [], "open": [], "shared": []}
    for candidate in selected.values():
        suspect = _to_suspect(candidate, selected, candidate_by_part, readings, certainties)
        suspects_by_status[_status(suspect, candidates, readings, evidence.confidence)].append(suspect)
    between = [reading for reading in readings.slow if len(reading.figure.group.nodes) > 1]
    unexplained = [r for r in between if not _is_explained(r, selected, readings)]
    for suspect in _flapping(unexplained, readings, certainties):
        is_sure = suspect.probability <= evidence.confidence
        suspects_by_status["confirmed" if is_sure else "open"].append(suspect)
        unexplained = [reading for reading in unexplained if not is_sure or reading not in suspect.readings]
    confirmed, still_open, shared = map(tuple, suspects_by_status.values())
    return SuspectAnalysis(readings, confirmed, still_open, shared, tuple(unexplained))


def _flapping(slow: Sequence[Reading], readings: Readings, certainties: Certainties) -> Iterator[Suspect]:
    """Yield NICs that are slow or fail in some rounds only, more often than others; those with most rounds first."""
    readings_by_nic: dict[Part, list[Reading]] = {}
    for reading in slow:
        for node in reading.figure.group.nodes if reading.figure.group.rail is not None else ():
            readings_by_nic.setdefault(Part("nic", node, reading.figure.group.rail or 0), []).append(reading)
    taken: set[Reading] = set()
    for part, own in sorted(readings_by_nic.items(), key=lambda item: (-len(item[1]), item[0])):
        free = tuple(reading for reading in own if reading not in taken)
        if len({reading.round_index for reading in free}) < _ROUNDS_TO_SUSPECT or not _shows_inside(part, readings):
            continue
        certainty = certainties.of(part)
        if certainty.log_e > _LIKELIER:
            taken.update(free)
            level = statistics.median(reading.ratio for reading in free)
            yield Suspect(part, level, free, (), certainty, certainties.probability(part, certainty), flaps=True)


def _shows_inside(part: Part, readings: Readings) -> bool:
    """Return True if the part is slow inside its unit, too: elsewhere, what it crosses may be slow at times."""
    unit_of, unit = readings.fabric.unit_of, readings.fabric.unit_of.get(part.owner)
    inside = [
        r
        for r in readings.of(part)
        if unit is not None and {unit_of.get(node) for node in r.figure.group.nodes} == {unit}
    ]
    return any(map(readings.is_slow, inside))


def _status(suspect: Suspect, candidates: Iterable[_Candidate], readings: Readings, confidence: float) -> str:
    if _is_shared(suspect, candidates, readings):
        return "shared"
    is_sure = suspect.rounds >= _rounds_needed(suspect, readings) and suspect.probability <= confidence
    return "confirmed" if is_sure else "open"


def _is_mapped(part: Part, readings: Readings) -> bool:
    """Return True if the leaves that the part shares with others are known."""
    if part.kind == "nic":
        return (part.owner, part.number) in readings.fabric.leaf_of
    return part.kind in {"leaf", "uplink"} or part.owner in readings.fabric.unit_of


def _is_shared(suspect: Suspect, candidates: Iterable[_Candidate], readings: Readings) -> bool:
    """Return True if no leaf is known and others on the same rails are as slow, so that they share the fault."""
    part = suspect.part
    if _is_mapped(part, readings):
        return False
    if part.kind == "together":
        return True
    near = 2 * readings.tolerance
    others = (reading for reading in readings.slow if part.owner not in reading.figure.group.nodes)
    as_slow = sum(abs(reading.at_line_rate - suspect.level) <= near for reading in others)
    if as_slow > _COMMON_RATIO * readings.transfers:
        return True
    rails = {
        candidate.part.number
        for candidate in candidates
        if candidate.part.kind == "nic"
        and candidate.part.owner != part.owner
        and candidate.part not in suspect.alternatives
        and abs(candidate.level - suspect.level) <= near
    }
    own_rails = {part.number} if part.kind == "nic" else {nic.rail for nic in readings.fabric.nodes[part.owner].nics}
    return 2 * len(rails & own_rails) >= len(own_rails)


def _rounds_needed(suspect: Suspect, readings: Readings) -> int:
    if not _is_mapped(suspect.part, readings):
        return ROUNDS_TO_BLAME_UNMAPPED
    return ROUNDS_TO_BLAME if suspect.level else ROUNDS_TO_BLAME_OF_A_HANG


def _candidates(readings: Readings) -> list[_Candidate]:
    """Return the parts that were not cleared, in the order in which they are tried."""
    candidates = [c for part in _likely_parts(readings) if (c := _candidate(part, readings)) is not None]
    return sorted(candidates, key=lambda candidate: (KINDS.index(candidate.part.kind), candidate.level))


def _select(candidates: Iterable[_Candidate], readings: Readings) -> dict[Part, _Candidate]:
    """Return the candidates that are needed to explain the slow results."""
    selected: dict[Part, _Candidate] = {}
    for candidate in candidates:
        own_node = selected.get(Part("node", candidate.part.owner))
        is_behind_node = own_node is not None and _is_behind(candidate, own_node, readings)
        if not is_behind_node and _is_evidence(_own_readings(candidate, selected, readings), candidate):
            selected[candidate.part] = candidate
    for candidate in sorted(selected.values(), key=lambda candidate: len(candidate.near)):
        if not _is_evidence(_own_readings(candidate, selected, readings), candidate):
            del selected[candidate.part]
    return selected


def _is_behind(candidate: _Candidate, node: _Candidate, readings: Readings) -> bool:
    """Return True if the candidate is a NIC that is no slower than its node makes it, except for noise."""
    return candidate.part.kind == "nic" and candidate.level >= node.level * (1 - readings.fine_tolerance)


def _to_suspect(
    candidate: _Candidate,
    selected: Mapping[Part, _Candidate],
    candidates: Mapping[Part, _Candidate],
    readings: Readings,
    certainties: Certainties,
) -> Suspect:
    own, fabric = _own_readings(candidate, selected, readings), readings.fabric
    others = sorted(
        part for part in parts_of(own[0].figure.group, fabric) if part in candidates and part not in selected
    )
    alternatives = (part for part in others if all(part.crossed_by(reading.figure, fabric) for reading in own))
    certainty = certainties.of(candidate.part)
    probability = certainties.probability(candidate.part, certainty)
    return Suspect(candidate.part, candidate.level, own, tuple(alternatives), certainty, probability)


def _own_readings(
    candidate: _Candidate, selected: Mapping[Part, _Candidate], readings: Readings
) -> tuple[Reading, ...]:
    """Return the readings near the candidate's level that none of ``selected`` but itself explains."""
    return tuple(r for r in candidate.near if not _is_explained(r, selected, readings, but=candidate.part))


def _is_explained(
    reading: Reading, selected: Mapping[Part, _Candidate], readings: Readings, but: Part | None = None
) -> bool:
    crossed = parts_of(reading.figure.group, readings.fabric) & selected.keys()
    return any(part != but and _explains(selected[part], reading, readings) for part in crossed)


def _is_evidence(own: Sequence[Reading], candidate: _Candidate) -> bool:
    """Return True if unexplained readings are more than chance; for a node, all that it does must be slow."""
    if candidate.part.kind == "node" and all(len(reading.figure.group.nodes) == 1 for reading in own):
        return False
    near, is_nic = len(candidate.near), candidate.part.kind == "nic"
    if is_nic and not candidate.level:
        return bool(own)  # no transient disturbance makes it hang
    return len(own) >= max(1 if near < 4 else 2, near * (_LIKELY_RATIO if is_nic else _LUCKY_RATIO))


def _likely_parts(readings: Readings) -> Iterator[Part]:
    """Yield the parts that slow results crossed; a part that many ports share only if many of these are slow."""
    fabric = readings.fabric
    counts = Counter((part, r.round_index) for r in readings.slow for part in parts_of(r.figure.group, fabric))
    likely = {part for (part, _), count in counts.items() if count >= _LIKELY_RATIO * readings.width(part)}
    yield from sorted(likely)


def _candidate(part: Part, readings: Readings) -> _Candidate | None:
    """Return the part as a candidate, unless it was proved healthy."""
    healthy_ratio = 1 - readings.tolerance
    if part.kind in {"nic", "together"} and any(r.at_line_rate >= healthy_ratio for r in readings.of(part)):
        return None  # as below, but sooner, because there are many of these
    part_readings = list(readings.of(part))
    ratios_by_kind: dict[FigureKind, list[float]] = {}
    for reading in part_readings:
        ratios_by_kind.setdefault(kind_of(reading.figure.group, readings.fabric), []).append(
            _proved_ratio(part, reading)
        )
    best = max(map(_best_but_luck, ratios_by_kind.values()), default=1.0)
    if best >= healthy_ratio:
        return None
    close = 1 - min(readings.tolerance, 2 * readings.fine_tolerance)
    ratios = (ratio for values in ratios_by_kind.values() for ratio in values)
    level = statistics.median(ratio for ratio in ratios if ratio >= best * close)
    edge = level * (1 - 2 * readings.tolerance)
    near = tuple(r for r in part_readings if readings.is_slow(r) and r.ratio >= edge)
    across = [r.ratio for r in part_readings if r.ratio > r.at_line_rate] if part.kind == "leaf" else []
    return _Candidate(part, level, near, statistics.median(across) if across else 0.0)


def _best_but_luck(values: Sequence[float]) -> float:
    """Return the best of ``values``; with many values, the best that is not luck."""
    return sorted(values, reverse=True)[math.ceil(len(values) * _LUCKY_RATIO) - 1]


def _proved_ratio(part: Part, reading: Reading) -> float:
    """Return how good the reading proves the part to be; an uplink is compared with the transfers that share it."""
    return reading.ratio if part.kind == "uplink" else reading.at_line_rate


def _explains(candidate: _Candidate, reading: Reading, readings: Readings) -> bool:
    """Return True if the reading is no worse than the candidate makes it."""
    if not candidate.part.crossed_by(reading.figure, readings.fabric):
        return False
    fine = readings.fine_tolerance
    below_line = candidate.level > 0 and reading.ratio > reading.at_line_rate
    least = max(candidate.level * (1 - fine), candidate.across * (1 - 2 * fine) if below_line else 0.0)
    return reading.ratio >= least
