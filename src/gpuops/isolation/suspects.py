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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuops.isolation.certainty import Certainties
from gpuops.isolation.evidence import Evidence
from gpuops.isolation.intermittent import ROUNDS_TO_FLAP, have_common_cause, intermittent
from gpuops.isolation.levels import level_alone, usual_inside
from gpuops.isolation.mild import mild_leaves, mild_nics
from gpuops.isolation.parts import KINDS, Part, parts_of
from gpuops.isolation.readings import FigureKind, Reading, Readings, kind_of
from gpuops.isolation.slow_nodes import SlowNodes
from gpuops.isolation.spread import LEAST, Certainty

ROUNDS_TO_BLAME = 4
"""A part must be slow in this many rounds and never healthy: other tenants' traffic does not last as long."""
ROUNDS_TO_BLAME_UNMAPPED = 5
"""If its leaf is unknown, a NIC may be slow because of what its neighbours share: it takes another round."""
ROUNDS_TO_BLAME_OF_A_HANG = 2
"""No transient disturbance makes a healthy part hang."""
_ROUNDS_ALONE = 2
"""An uplink must be slow in this many rounds while one transfer has it to itself ..."""
_OTHER_UNITS = 2
"""... with this many other units: with a single one, that may be at fault, or what joins the two."""
_COMMON_RATIO, _COMMON_RATIO_ON_RAIL = 1 / 10, 1 / 5
"""If more pairs than this, of all or of one rail, are equally slow, the cause is what they cross."""
_FEW_UPLINKS = 2
_LUCKY_RATIO = 1 / 8
"""Of many readings of one part, this fraction may be better than the part is, because of noise ..."""
_MOST_LUCK = 0.1
"""... but not by more than this: nothing makes a transfer faster than each part that it crosses."""
_LIKELY_RATIO = 1 / 3
"""A part with many ports is tried if this fraction of them was slow in one round; a pair inside a leaf uses two."""


@dataclass(frozen=True, eq=False)
class Suspect:
    """A part that is suspected until another round clears it. ``level`` is the fraction of full speed that it allows.

    ``readings`` are those that no other suspect explains; ``alternatives`` are parts that explain each of them as well.
    In ``rounds`` rounds it was slow undisturbed. ``probability`` bounds the chance, for the whole run, that a healthy
    part looks like this. One that ``flaps`` was healthy in some rounds.
    """

    part: Part
    level: float
    readings: tuple[Reading, ...]
    alternatives: tuple[Part, ...]
    rounds: int
    certainty: Certainty
    probability: float
    flaps: bool = False


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
    rate; 1 if only this leaf's are. ``healthy``, of an uplink: the share of its transfers that are not slow, of all.
    """

    part: Part
    level: float
    near: tuple[Reading, ...]
    across: float = 0.0
    healthy: float = 0.0


def find_suspects(evidence: Evidence) -> SuspectAnalysis:
    """Test every part that slow results crossed."""
    readings = Readings(evidence)
    slow_nodes = SlowNodes(readings)
    candidates = _candidates(readings, slow_nodes)
    selected = _select(candidates, readings)
    common = _of_the_spine(selected, readings)
    selected = {part: candidate for part, candidate in selected.items() if part not in common}
    candidate_by_part = {candidate.part: candidate for candidate in candidates}
    certainties = Certainties(readings, slow_nodes, lambda r, but: _is_explained(r, selected, readings, but))
    suspects_by_status: dict[str, list[Suspect]] = {"confirmed": [], "open": [], "shared": []}
    for candidate in selected.values():
        suspect = _to_suspect(candidate, selected, candidate_by_part, readings, certainties)
        suspects_by_status[_status(suspect, candidates, readings, evidence.confidence)].append(suspect)
    for suspect in _behind_shared(suspects_by_status, readings):
        suspects_by_status["confirmed"].remove(suspect)
        suspects_by_status["open"].append(suspect)
    between = [r for r in readings.slow if len(r.figure.group.nodes) > 1 and not slow_nodes.explain(r)]
    unexplained = [r for r in between if not _is_explained(r, selected, readings)]
    for suspect in _elusive(unexplained, common | selected.keys(), readings, certainties):
        needed = ROUNDS_TO_FLAP if suspect.flaps else ROUNDS_TO_BLAME
        is_sure = suspect.probability <= evidence.confidence and suspect.rounds >= needed
        suspects_by_status["confirmed" if is_sure else "open"].append(suspect)
        unexplained = [reading for reading in unexplained if not is_sure or reading not in suspect.readings]
    confirmed, still_open, shared = map(tuple, suspects_by_status.values())
    return SuspectAnalysis(readings, confirmed, still_open, shared, tuple(unexplained))


def _behind_shared(by_status: Mapping[str, Sequence[Suspect]], readings: Readings) -> list[Suspect]:
    """Return the confirmed uplinks all of whose readings may be explained by an unknown leaf of the other unit."""
    unit_of = readings.fabric.unit_of
    shared = {(unit_of.get(each.part.owner), each.part.number) for each in by_status["shared"]}

    def is_behind(suspect: Suspect) -> bool:
        return all(
            any((unit_of.get(name), suspect.part.number) in shared for name in reading.figure.group.nodes)
            for reading in suspect.readings
        )

    return [each for each in by_status["confirmed"] if each.part.kind == "uplink" and shared and is_behind(each)]


def _elusive(
    slow: Sequence[Reading], selected: Collection[Part], readings: Readings, certainties: Certainties
) -> Iterator[Suspect]:
    """Yield the parts that are slow at times only, then those that are a little slow in every round."""
    excluded = set(selected)
    for part, own in intermittent(slow, selected, readings, certainties):
        level = statistics.median(reading.ratio for reading in own)
        excluded.add(part)
        yield _suspect(part, level, own, readings, certainties, flaps=True)
    for part, level, own in mild_nics(readings, certainties, excluded):
        yield _suspect(part, level, own, readings, certainties)


def _suspect(
    part: Part,
    level: float,
    own: tuple[Reading, ...],
    readings: Readings,
    certainties: Certainties,
    *,
    alternatives: tuple[Part, ...] = (),
    flaps: bool = False,
) -> Suspect:
    certainty = certainties.of(part)
    rounds = len({reading.round_index for reading in own if readings.is_evidence(part.kind, reading)})
    probability = certainties.probability(part, certainty)
    return Suspect(part, level, own, alternatives, rounds, certainty, probability, flaps)


def _status(suspect: Suspect, candidates: Iterable[_Candidate], readings: Readings, confidence: float) -> str:
    if _is_shared(suspect, candidates, readings):
        return "shared"
    is_sure = suspect.rounds >= _rounds_needed(suspect, readings) and suspect.probability <= confidence
    return "confirmed" if is_sure and _is_slow_alone(suspect, readings) else "open"


def _is_slow_alone(suspect: Suspect, readings: Readings) -> bool:
    """Return True unless only the load of many transfers shows that an uplink is slow, or only one other unit does."""
    part, fabric = suspect.part, readings.fabric
    if part.kind != "uplink" or not suspect.level:
        return True
    alone = [reading for reading in suspect.readings if readings.is_alone(reading)]
    others = {fabric.unit_of.get(node) for reading in alone for node in reading.figure.group.nodes} - {part.owner}
    is_of_one_path = len(others) < min(_OTHER_UNITS, len(fabric.units) - 1)
    return not is_of_one_path and _rounds_alone(alone, readings) >= _ROUNDS_ALONE


def _rounds_alone(own: Iterable[Reading], readings: Readings) -> int:
    return len({reading.round_index for reading in own if readings.is_alone(reading)})


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
    near = 2 * readings.tolerance
    if part.kind == "together":
        pairs = [r for r in readings.between if r.figure.group.rail is None and part.owner not in r.figure.group.nodes]
        return sum(abs(r.at_line_rate - suspect.level) <= near for r in pairs) > _COMMON_RATIO * len(pairs)
    others = [reading for reading in readings.slow if part.owner not in reading.figure.group.nodes]
    as_slow = [reading.figure.group.rail for reading in others if abs(reading.at_line_rate - suspect.level) <= near]
    on_rail = as_slow.count(part.number) if part.kind == "nic" else 0
    per_rail = readings.transfers / max(1, len(readings.fabric.rails))
    if len(as_slow) > _COMMON_RATIO * readings.transfers or on_rail > _COMMON_RATIO_ON_RAIL * per_rail:
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


def _candidates(readings: Readings, slow_nodes: SlowNodes) -> list[_Candidate]:
    """Return the parts that were not cleared, in the order in which they are tried."""
    candidates = [c for part in _likely_parts(readings) if (c := _candidate(part, readings, slow_nodes)) is not None]
    known = {candidate.part for candidate in candidates}
    for part, level in mild_leaves(readings, Certainties(readings, slow_nodes, lambda *_: False)):
        if part not in known:
            candidates.append(_Candidate(part, level, tuple(r for r in readings.of(part) if readings.is_slow(r))))
    return sorted(candidates, key=lambda c: (KINDS.index(c.part.kind), c.healthy, c.level))


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


def _of_the_spine(selected: Mapping[Part, _Candidate], readings: Readings) -> set[Part]:
    """Return the uplinks of which many, or all, are equally slow: a link of such a spine is slower than a NIC.

    A few count only if each was slow by itself in several rounds: one slow round may be chance.
    """
    uplinks = [candidate for part, candidate in selected.items() if part.kind == "uplink" and candidate.level]
    near, common = 2 * readings.tolerance, set[Part]()
    lasting = [uplink for uplink in uplinks if _rounds_alone(uplink.near, readings) >= _ROUNDS_ALONE]
    for uplink in uplinks:
        alike = [other.part for other in uplinks if abs(other.level - uplink.level) <= near]
        same = [other.part for other in lasting if abs(other.level - uplink.level) <= readings.fine_tolerance]
        usual = level_alone(uplink.part, readings) * min(1.0, usual_inside(uplink.part, readings))
        if uplink.level > usual * (1 - LEAST):
            common.add(uplink.part)
        elif have_common_cause(alike, readings):
            common.update(alike)
        elif len(same) > _FEW_UPLINKS and len({p.owner for p in same}) > 1 and len({p.number for p in same}) > 1:
            common.update(same)  # hardly as many faults of the same size, of several units and rails
    return common


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
    return _suspect(candidate.part, candidate.level, own, readings, certainties, alternatives=tuple(alternatives))


def _own_readings(
    candidate: _Candidate, selected: Mapping[Part, _Candidate], readings: Readings
) -> tuple[Reading, ...]:
    """Return the readings near the candidate's level that none of ``selected`` but itself explains."""
    return tuple(r for r in candidate.near if not _is_explained(r, selected, readings, but=candidate.part))


def _is_explained(
    reading: Reading, selected: Mapping[Part, _Candidate], readings: Readings, but: Part | None = None
) -> bool:
    crossed = parts_of(reading.figure.group, readings.fabric) & selected.keys() - {but}
    return any(_explains(selected[part], reading, readings) for part in crossed) or (
        len(crossed) > 1 and _explain_together([selected[part].level for part in crossed], reading, readings)
    )


def _explain_together(levels: Sequence[float], reading: Reading, readings: Readings) -> bool:
    """Return True if slow parts make one another worse: a flow that loses packets at two of them loses twice."""
    return reading.ratio >= math.prod(levels) * (1 - readings.fine_tolerance)


def _is_evidence(own: Sequence[Reading], candidate: _Candidate) -> bool:
    """Return True if unexplained readings are more than chance; for a node, all that it does must be slow."""
    if candidate.part.kind == "node" and all(len(reading.figure.group.nodes) == 1 for reading in own):
        return False
    near, is_nic = len(candidate.near), candidate.part.kind == "nic"
    if is_nic and not candidate.level:
        return bool(own)  # no transient disturbance makes it hang
    return len(own) >= max(1 if near < 4 else 2, near * (_LIKELY_RATIO if is_nic else _LUCKY_RATIO))


def _likely_parts(readings: Readings) -> Iterator[Part]:
    """Yield the parts that slow results crossed; a part that many ports share only if many of these are slow.

    One transfer is enough for an uplink that it has to itself.
    """
    fabric = readings.fabric
    counts = Counter((part, r.round_index) for r in readings.slow for part in parts_of(r.figure.group, fabric))
    likely = {part for (part, _), count in counts.items() if count >= _LIKELY_RATIO * readings.width(part)}
    single = (
        r for r in readings.slow if readings.crosses(r) and r.figure.group.rail is not None and readings.is_alone(r)
    )
    alone = {part for r in single for part in parts_of(r.figure.group, fabric) if part.kind == "uplink"}
    yield from sorted(likely | alone)


def _candidate(part: Part, readings: Readings, slow_nodes: SlowNodes) -> _Candidate | None:
    """Return the part as a candidate, unless it was proved healthy."""
    healthy_ratio = 1 - readings.tolerance
    if part.kind in {"nic", "together"} and any(r.at_line_rate >= healthy_ratio for r in readings.of(part)):
        return None  # as below, but sooner, because there are many of these
    part_readings, healthy = list(readings.of(part)), 0.0
    if part.kind == "uplink":
        healthy = sum(not readings.is_slow(r) for r in part_readings) / len(part_readings)
        alone = [r for r in part_readings if r.ratio and readings.is_alone(r)]
        if any(r.at_line_rate >= healthy_ratio for r in alone):
            return None
        part_readings = alone or part_readings
    ratios_by_kind = _ratios_by_kind(part, part_readings, readings)
    best = max(map(_best_but_luck, ratios_by_kind.values()), default=1.0)
    if best >= healthy_ratio:
        return None
    close = 1 - min(readings.tolerance, 2 * readings.fine_tolerance)
    ratios = (ratio for values in ratios_by_kind.values() for ratio in values)
    level = statistics.median(ratio for ratio in ratios if ratio >= best * close)
    if part.kind == "uplink" and level >= usual_inside(part, readings) * (1 - readings.fine_tolerance):
        return None  # what slows the transfers inside the unit slows those that leave it
    edge = level * (1 - 2 * readings.tolerance)
    own = part_readings if part.kind == "node" else [r for r in part_readings if not slow_nodes.explain(r)]
    near = tuple(r for r in own if readings.is_slow(r) and r.ratio >= edge)
    across = [r.ratio for r in part_readings if r.ratio > r.at_line_rate] if part.kind == "leaf" else []
    return _Candidate(part, level, near, statistics.median(across) if across else 0.0, healthy)


def _ratios_by_kind(part: Part, own: Iterable[Reading], readings: Readings) -> Mapping[FigureKind, list[float]]:
    """Return what the readings prove, by kind; of a leaf, one figure per pair: a suspect is measured more often."""
    by_pair: dict[tuple[FigureKind, object], list[float]] = {}
    for number, reading in enumerate(own):
        group = reading.figure.group
        pair = frozenset(group.nodes) if part.kind == "leaf" else number
        by_pair.setdefault((kind_of(group, readings.fabric), pair), []).append(_proved_ratio(part, reading))
    ratios: dict[FigureKind, list[float]] = {}
    for (kind, _), values in by_pair.items():
        ratios.setdefault(kind, []).append(statistics.median(values))
    return ratios


def _best_but_luck(values: Sequence[float]) -> float:
    """Return the best of ``values``; with many values, the best that is not luck."""
    best, usual = max(values), sorted(values, reverse=True)[math.ceil(len(values) * _LUCKY_RATIO) - 1]
    return best if best - usual > _MOST_LUCK else usual


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
