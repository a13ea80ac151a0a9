"""Blaming: what the evidence says of parts between nodes, with the chain of evidence in words."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import cast

from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Kind
from gpuops.isolation.grouping import blame_groups
from gpuops.isolation.parts import Part
from gpuops.isolation.readings import Reading, Readings
from gpuops.isolation.suspects import Suspect, SuspectAnalysis, suspect

_ALL_SLOW = 0.85
"""Below this share of what is expected, all pairs alike have a common fault; a model is not more exact."""
_NAMED = 8


def blame(evidence: Evidence) -> Blame:
    """Who is at fault between nodes, who is still suspect, and what was slow for nobody's fault.

    What runs inside single nodes is `within`'s to judge.
    """
    if len(evidence.fabric.nodes) < 2:
        return Blame()
    suspicion = suspect(evidence)
    groups = blame_groups(evidence)
    return Blame(
        (*(_accusation(charge, suspicion.readings, evidence) for charge in suspicion.confirmed), *groups.accusations),
        tuple(dict.fromkeys(_contention(suspicion))),
        (*(charge.part.name(evidence.fabric) for charge in suspicion.open), *groups.suspects),
        (*_shared(suspicion), *_unrepeated(suspicion), *_common_fault(evidence), *groups.unclear),
    )


def _accusation(charge: Suspect, readings: Readings, evidence: Evidence) -> BlamedPart:
    fabric, name = readings.fabric, charge.part.name(readings.fabric)
    partners = tuple(dict.fromkeys(_partners(charge)))
    found, normal = _typical(charge.readings)
    said = (_told(charge, found, normal, partners, readings), *_comparison(charge.part, readings))
    return BlamedPart(
        name,
        _kind(charge),
        found,
        normal,
        partners,
        len({fabric.unit_of.get(partner) for partner in partners} - {None}),
        (*said, *_counted(name, evidence)),
        tuple(dict.fromkeys(part.name(fabric) for part in charge.alternatives if part.name(fabric) != name)),
    )


def _kind(charge: Suspect) -> Kind:
    if charge.level:
        return "slow"
    return cast("Kind", Counter(reading.figure.trouble or "hang" for reading in charge.readings).most_common(1)[0][0])


def _partners(charge: Suspect) -> Iterator[str]:
    """The other nodes with which a node or NIC was at fault."""
    if charge.part.kind not in {"leaf", "uplink"}:
        yield from (n for r in charge.readings for n in r.figure.group.nodes if n != charge.part.owner)


def _typical(own: Iterable[Reading]) -> tuple[float | None, float | None]:
    """What was found and what is normal, in GB/s, over pairs; where pairs differ, those that may be the fastest."""
    pairs = [reading for reading in own if reading.figure.gb_per_s and len(reading.figure.group.nodes) == 2]
    best = max((reading.figure.gb_per_s or 0.0) / reading.share for reading in pairs) if pairs else 0.0
    free = [r for r in pairs if (r.figure.gb_per_s or 0.0) / r.share > 0.9 * best]
    if not free:
        return None, None
    found = [reading.figure.gb_per_s or 0.0 for reading in free]
    return statistics.median(found), statistics.median(f / r.share for f, r in zip(found, free, strict=True))


def _told(
    charge: Suspect, found: float | None, normal: float | None, partners: tuple[str, ...], readings: Readings
) -> str:
    what = f"{found:.3g} of {normal:.3g} GB/s" if found and normal else _TROUBLES.get(_kind(charge), _kind(charge))
    part = charge.part
    if part.kind == "leaf":
        return f"{what} in each of {len(charge.readings)} transfers over its ports, in {charge.rounds} rounds"
    if part.kind == "uplink":
        return f"{what} in each of {len(charge.readings)} pairs with other units on rail {part.number}"
    units = {readings.fabric.unit_of.get(partner) for partner in partners} - {None}
    where = f" in {len(units)} units" if len(units) > 1 else ""
    whose = {"node": "on every rail ", "together": "with all GPUs "}.get(part.kind, "")
    return f"{what} {whose}with {len(partners)} partner{'s' * (len(partners) > 1)}{where}"


_TROUBLES = {
    "hang": "never ended",
    "unreachable": "no connection",
    "wrong": "wrong sums",
    "socket": "over TCP instead of RDMA",
}


def _comparison(part: Part, readings: Readings) -> Iterator[str]:
    """What is well beside the part, so that it is not that."""
    fabric = readings.fabric
    if part.kind == "nic":
        others = [nic.rail for nic in fabric.nodes[part.owner].nics if nic.rail != part.number]
        known = {rail: _best(readings.of(Part("nic", part.owner, rail))) for rail in others}
        values = [value for value in known.values() if value]
        if values:
            yield f"its other {_rails(len(values))} {min(values):.3g}-{max(values):.3g}"
    elif part.kind == "uplink":
        ports = [Part("nic", node, part.number) for node in fabric.units[part.owner]]
        inside = [r for port in ports for r in readings.of(port) if not _crosses(r, readings) and r.figure.gb_per_s]
        if inside:
            yield f"pairs inside {part.owner} {statistics.median(r.figure.gb_per_s or 0.0 for r in inside):.3g}"


def _rails(count: int) -> str:
    return "rail" if count == 1 else f"{count} rails"


def _best(known: Iterable[Reading]) -> float:
    return max((reading.figure.gb_per_s or 0.0 for reading in known), default=0.0)


def _crosses(reading: Reading, readings: Readings) -> bool:
    return len({readings.fabric.unit_of.get(node) for node in reading.figure.group.nodes}) > 1


def _counted(name: str, evidence: Evidence) -> Iterator[str]:
    """The errors that its NICs counted during the rounds, and whether others did."""
    counted: Counter[str] = Counter()
    for measured in evidence.rounds:
        for part, counts in measured.counters.items():
            if part == name or part.startswith(f"{name}:"):
                counted.update(counts)
    for counter, count in sorted(counted.items()):
        yield f"{counter.replace('_', ' ')} +{count} meanwhile"


def _contention(suspicion: SuspectAnalysis) -> Iterator[str]:
    """Pairs that were slow once, and whose parts are well."""
    for reading in suspicion.unexplained:
        if reading.share:
            yield _pair(reading)


def _pair(reading: Reading) -> str:
    group = reading.figure.group
    return " and ".join(group.nodes) + (f" on rail {group.rail}" if group.rail is not None else "")


def _unrepeated(suspicion: SuspectAnalysis) -> Iterator[str]:
    """What came to nothing once, and accuses nobody."""
    for reading in suspicion.unexplained:
        if not reading.share:
            what = _TROUBLES.get(reading.figure.trouble, reading.figure.trouble)
            yield f"{_pair(reading)}: {what} in one round, and both were well with others"


def _shared(suspicion: SuspectAnalysis) -> Iterator[str]:
    rails: dict[int, list[Suspect]] = {}
    for charge in suspicion.shared:
        rails.setdefault(charge.part.number, []).append(charge)
    for rail, charges in sorted(rails.items()):
        names = [charge.part.owner for charge in charges]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        where = f" on rail {rail}" if rail >= 0 else ""
        yield (
            f"{', '.join(names[:_NAMED])}{more} {'are' if len(names) > 1 else 'is'} slow{where} like others: "
            "what they share is at fault, a leaf or its uplinks; declare which leaf each port is cabled to (fabric:)"
        )


def _common_fault(evidence: Evidence) -> Iterator[str]:
    """What slows every pair alike accuses none of them."""
    shares = [
        figure.gb_per_s / evidence.expected[figure.group]
        for measured in evidence.rounds
        if measured.round.scope == "rail" and evidence.expected
        for figure in measured.figures
        if figure.gb_per_s and figure.group in evidence.expected
    ]
    if shares and statistics.median(shares) < _ALL_SLOW:
        yield (
            f"pairs on every rail give but {100 * statistics.median(shares):.0f} % of what is expected: "
            "look for what all nodes have in common"
        )
