"""The parts between nodes that the evidence blames, with the chain of evidence in words."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import cast

from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Kind
from gpuops.isolation.grouping import blame_groups
from gpuops.isolation.parts import Part
from gpuops.isolation.readings import Reading, Readings
from gpuops.isolation.suspects import Suspect, SuspectAnalysis, find_suspects

_ALL_SLOW = 0.85
"""If all pairs reach less than this fraction of the expectation, they have a common fault: the model is not exact."""
_MAX_NAMES = 8


def blame(evidence: Evidence) -> Blame:
    """Return the parts between nodes that are at fault or suspect, and the pairs that were slow without a faulty part.

    Rounds inside single nodes are judged by `intra_node`.
    """
    if len(evidence.fabric.nodes) < 2:
        return Blame()
    analysis = find_suspects(evidence)
    groups = blame_groups(evidence)
    return Blame(
        (*(_blamed_part(suspect, analysis.readings, evidence) for suspect in analysis.confirmed), *groups.blamed),
        tuple(dict.fromkeys(_contention(analysis))),
        (*(suspect.part.name(evidence.fabric) for suspect in analysis.open), *groups.suspects),
        (*_shared(analysis), *_unrepeated(analysis), *_common_fault(evidence), *groups.unclear),
    )


def _blamed_part(suspect: Suspect, readings: Readings, evidence: Evidence) -> BlamedPart:
    fabric, name = readings.fabric, suspect.part.name(readings.fabric)
    partners = tuple(dict.fromkeys(_partners(suspect)))
    measured, normal = _typical(suspect.readings)
    sentences = (_speed_in_words(suspect, measured, normal, partners, readings), *_comparison(suspect.part, readings))
    return BlamedPart(
        name,
        _kind(suspect),
        measured,
        normal,
        partners,
        len({fabric.unit_of.get(partner) for partner in partners} - {None}),
        (*sentences, *_counted(name, evidence)),
        tuple(dict.fromkeys(part.name(fabric) for part in suspect.alternatives if part.name(fabric) != name)),
    )


def _kind(suspect: Suspect) -> Kind:
    if suspect.level:
        return "slow"
    return cast("Kind", Counter(reading.figure.trouble or "hang" for reading in suspect.readings).most_common(1)[0][0])


def _partners(suspect: Suspect) -> Iterator[str]:
    """Yield the other nodes with which a node or NIC was at fault."""
    if suspect.part.kind not in {"leaf", "uplink"}:
        yield from (n for r in suspect.readings for n in r.figure.group.nodes if n != suspect.part.owner)


def _typical(readings: Iterable[Reading]) -> tuple[float | None, float | None]:
    """Return the measured and the normal GB/s over pairs; if pairs differ, over those that may be the fastest."""
    pairs = [reading for reading in readings if reading.figure.gb_per_s and len(reading.figure.group.nodes) == 2]
    best_rate = max((reading.figure.gb_per_s or 0.0) / reading.ratio for reading in pairs) if pairs else 0.0
    fastest = [r for r in pairs if (r.figure.gb_per_s or 0.0) / r.ratio > 0.9 * best_rate]
    if not fastest:
        return None, None
    rates = [reading.figure.gb_per_s or 0.0 for reading in fastest]
    return statistics.median(rates), statistics.median(rate / r.ratio for rate, r in zip(rates, fastest, strict=True))


def _speed_in_words(
    suspect: Suspect, measured: float | None, normal: float | None, partners: tuple[str, ...], readings: Readings
) -> str:
    part, kind = suspect.part, _kind(suspect)
    effect = f"{measured:.3g} of {normal:.3g} GB/s" if measured and normal else _FAILURES.get(kind, kind)
    if part.kind == "leaf":
        return f"{effect} in each of {len(suspect.readings)} transfers over its ports, in {suspect.rounds} rounds"
    if part.kind == "uplink":
        return f"{effect} in each of {len(suspect.readings)} pairs with other units on rail {part.number}"
    units = {readings.fabric.unit_of.get(partner) for partner in partners} - {None}
    where = f" in {len(units)} units" if len(units) > 1 else ""
    scope = {"node": "on every rail ", "together": "with all GPUs "}.get(part.kind, "")
    return f"{effect} {scope}with {len(partners)} partner{'s' * (len(partners) > 1)}{where}"


_FAILURES = {
    "hang": "never ended",
    "unreachable": "no connection",
    "wrong": "wrong sums",
    "socket": "over TCP instead of RDMA",
}


def _comparison(part: Part, readings: Readings) -> Iterator[str]:
    """Yield what is healthy next to the part, which rules that out as the cause."""
    fabric = readings.fabric
    if part.kind == "nic":
        others = [nic.rail for nic in fabric.nodes[part.owner].nics if nic.rail != part.number]
        best_by_rail = {rail: _best(readings.of(Part("nic", part.owner, rail))) for rail in others}
        rates = [rate for rate in best_by_rail.values() if rate]
        if rates:
            yield f"its other {_rails(len(rates))} {min(rates):.3g}-{max(rates):.3g}"
    elif part.kind == "uplink":
        ports = [Part("nic", node, part.number) for node in fabric.units[part.owner]]
        inside = [r for port in ports for r in readings.of(port) if not _crosses(r, readings) and r.figure.gb_per_s]
        if inside:
            yield f"pairs inside {part.owner} {statistics.median(r.figure.gb_per_s or 0.0 for r in inside):.3g}"


def _rails(count: int) -> str:
    return "rail" if count == 1 else f"{count} rails"


def _best(readings: Iterable[Reading]) -> float:
    return max((reading.figure.gb_per_s or 0.0 for reading in readings), default=0.0)


def _crosses(reading: Reading, readings: Readings) -> bool:
    return len({readings.fabric.unit_of.get(node) for node in reading.figure.group.nodes}) > 1


def _counted(name: str, evidence: Evidence) -> Iterator[str]:
    """Yield the errors that its NICs counted during the rounds."""
    totals: Counter[str] = Counter()
    for measured in evidence.rounds:
        for part, counts in measured.counters.items():
            if part == name or part.startswith(f"{name}:"):
                totals.update(counts)
    for counter, count in sorted(totals.items()):
        yield f"{counter.replace('_', ' ')} +{count} during the rounds"


def _contention(analysis: SuspectAnalysis) -> Iterator[str]:
    """Yield the pairs that were slow once, and whose parts are healthy."""
    for reading in analysis.unexplained:
        if reading.ratio:
            yield _pair(reading)


def _pair(reading: Reading) -> str:
    group = reading.figure.group
    return " and ".join(group.nodes) + (f" on rail {group.rail}" if group.rail is not None else "")


def _unrepeated(analysis: SuspectAnalysis) -> Iterator[str]:
    """Yield the pairs that failed once, which blames no part."""
    for reading in analysis.unexplained:
        if not reading.ratio:
            failure = _FAILURES.get(reading.figure.trouble, reading.figure.trouble)
            yield f"{_pair(reading)}: {failure} in one round, but both nodes were healthy with other partners"


def _shared(analysis: SuspectAnalysis) -> Iterator[str]:
    suspects_by_rail: dict[int, list[Suspect]] = {}
    for suspect in analysis.shared:
        suspects_by_rail.setdefault(suspect.part.number, []).append(suspect)
    for rail, suspects in sorted(suspects_by_rail.items()):
        names = [suspect.part.owner for suspect in suspects]
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        where = f" on rail {rail}" if rail >= 0 else ""
        yield (
            f"{', '.join(names[:_MAX_NAMES])}{more} {'are' if len(names) > 1 else 'is'} slow{where} like others: "
            "the fault is in what they share, a leaf or its uplinks; declare the leaf of each port (fabric:)"
        )


def _common_fault(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence if every pair is slow: that blames none of them."""
    ratios = [
        figure.gb_per_s / evidence.expected[figure.group]
        for measured in evidence.rounds
        if measured.round.scope == "rail" and evidence.expected
        for figure in measured.figures
        if figure.gb_per_s and figure.group in evidence.expected
    ]
    if ratios and statistics.median(ratios) < _ALL_SLOW:
        yield (
            f"pairs on every rail reach only {100 * statistics.median(ratios):.0f} % of the expectation:  "
            "check what all nodes have in common"
        )
