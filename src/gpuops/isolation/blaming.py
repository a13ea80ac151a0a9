"""The parts between nodes that the evidence blames, with the chain of evidence in words."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from gpuops.isolation.certainty import more_rounds, rounds_to_decide
from gpuops.isolation.counters import CounterEvidence, blame_links
from gpuops.isolation.evidence import IN_WORDS, Blame, BlamedPart, Evidence, Kind, Sentence
from gpuops.isolation.explained import gpu_of_rail
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.groups.blaming import blame_groups
from gpuops.isolation.groups.view import group_readings
from gpuops.isolation.links import is_crowded
from gpuops.isolation.parts import KINDS, Part
from gpuops.isolation.readings import Reading, Readings
from gpuops.isolation.rounds import RankGroup, own_words
from gpuops.isolation.suspects import Suspect, SuspectAnalysis, find_suspects

_MAX_PAIRS = 4
_ROUNDS_IN_COMMON, _MAX_IN_COMMON, _BY_CHANCE = 2, 3, 0.2
_ENOUGH_ON_PATH, _NEARLY_ALL = 8, 0.75
_ALIKE = 0.05
"""All NICs of a node that keep the same fraction of their bandwidth but for this have one cause."""
_WORTH_SAYING = 20
"""A suspect whose readings are this many times likelier of a faulty part than of a healthy one is named as unclear; one
that is slow at times already if they are likelier at all, because few rounds show it."""


def blame(evidence: Evidence) -> Blame:
    """Return the parts between nodes that are at fault or suspect, and the pairs that were slow without a faulty part.

    Rounds inside single nodes are judged by `intra_node`.
    """
    if len(evidence.fabric.nodes) < 2:
        return Blame()
    analysis = find_suspects(evidence)
    inside = (reading for reading in analysis.unexplained if not _crosses(reading, analysis.readings))
    groups = blame_groups(evidence, {name for reading in inside for name in reading.figure.group.nodes})
    counters = CounterEvidence(evidence)
    one_pair = [suspect for suspect in analysis.confirmed if _is_of_one_pair(suspect)]
    located = (suspect for suspect in analysis.confirmed if suspect not in one_pair)
    confirmed = (_blamed_part(suspect, analysis, evidence, counters) for suspect in located)
    blamed = (*_whole_nodes(tuple(confirmed), evidence.fabric), *groups.blamed)
    paths = (*_slow_paths(analysis, evidence), *_in_common(analysis, evidence))
    return Blame(
        (*blamed, *blame_links(evidence, [each.part for each in blamed])),
        (*_contention(analysis, counters), *groups.contention),
        (*(s.part.name(evidence.fabric) for s in analysis.open if not s.flaps or _is_likely(s)), *groups.suspects),
        (
            *(_at_either_end(suspect, evidence.fabric) for suspect in one_pair),
            *_shared(analysis),
            *_unrepeated(analysis),
            *_undecided(analysis, evidence),
            *paths,
            *groups.unclear,
        ),
    )


def _is_of_one_pair(suspect: Suspect) -> bool:
    """Return True if a single pair of nodes shows it, so that either end may be at fault, or what joins them."""
    nodes = {name for reading in suspect.readings for name in reading.figure.group.nodes}
    ends = {part.owner for part in suspect.alternatives if part.kind == "nic"}
    return len(nodes) == 2 and nodes - {suspect.part.owner} <= ends


def _at_either_end(suspect: Suspect, fabric: Fabric) -> Sentence:
    effect = _effect(suspect, *_typical(suspect.readings))
    parts = sorted((suspect.part, *suspect.alternatives), key=lambda part: KINDS.index(part.kind), reverse=True)
    names = [part.name(fabric) for part in parts]
    about = f"{effect} in {suspect.rounds} rounds of one pair; measure both with other nodes to find out which it is"
    return Sentence(f"{' or '.join(names)}: {about}", names, about)


def _blamed_part(
    suspect: Suspect, analysis: SuspectAnalysis, evidence: Evidence, counters: CounterEvidence
) -> BlamedPart:
    readings, kind = analysis.readings, _kind(suspect)
    fabric = readings.fabric
    name, *others = _names(suspect, kind, evidence)
    partners = tuple(dict.fromkeys(_partners(suspect)))
    measured, normal = _typical(suspect.readings)
    sentences = (_speed_in_words(suspect, measured, normal, partners, readings), *_comparison(suspect.part, analysis))
    return BlamedPart(
        name,
        kind,
        measured,
        normal,
        partners,
        len({fabric.unit_of.get(partner) for partner in partners} - {None}),
        (
            *sentences,
            *own_words(reading.figure for reading in suspect.readings),
            *counters.sentences(suspect.part.name(fabric)),
        ),
        tuple(others),
        suspect.probability,
    )


def _whole_nodes(blamed: Sequence[BlamedPart], fabric: Fabric) -> Iterator[BlamedPart]:
    """Yield the parts, but one node in place of all its NICs if they are alike: the cause is one that they share."""
    for part in blamed:
        node = fabric.nodes.get(part.part.partition(":")[0])
        nics = [f"{node.name}:{nic.name}" for nic in node.nics] if node else []
        alike = [other for other in blamed if other.part in nics and _are_alike(part, other)]
        if not node or len(nics) < 2 or len(alike) < len(nics):
            yield part
        elif part.part == nics[0]:
            kind: Kind = "slow" if any(other.kind == "slow" for other in alike) else part.kind
            words = (f"on each of its {len(nics)} NICs", *part.evidence[:1])
            yield replace(part, part=node.name, kind=kind, evidence=words)


def _are_alike(one: BlamedPart, other: BlamedPart) -> bool:
    """Return True if two parts fail in the same way, or keep the same fraction of their bandwidth."""
    is_slow = {one.kind, other.kind} <= {"slow", "flapping"}
    return (is_slow or one.kind == other.kind) and abs(_kept(one) - _kept(other)) <= _ALIKE


def _kept(part: BlamedPart) -> float:
    """Return the remaining fraction of the bandwidth."""
    return (part.found_gb_per_s or 0.0) / (part.expected_gb_per_s or 1.0)


def _names(suspect: Suspect, kind: Kind, evidence: Evidence) -> Sequence[str]:
    """Return the name of the part, then of its alternatives: a rank that fails may do so because of its GPU or NIC.

    So may one that computes wrong sums. It is the NIC if all GPUs of the node work together while they do without it.
    """
    fabric = evidence.fabric
    names = [part.name(fabric) for part in (suspect.part, *suspect.alternatives)]
    if suspect.part.kind == "uplink" and any(part.kind == "uplink" for part in suspect.alternatives):
        names.append("spine")
    if kind == "wrong" or (kind == "error" and suspect.part.kind == "nic"):
        nics = [part for part in (suspect.part, *suspect.alternatives) if part.kind == "nic"]
        unproved = [nic for nic in nics if not _works_inside(nic.owner, evidence)]
        gpus = (gpu_of_rail(fabric, nic.owner, nic.number) for nic in unproved)
        names = [*filter(None, gpus), *names]
    if kind == "wrong":  # last what joins NICs: each packet carries a checksum, and no switch computes sums
        names.sort(key=lambda name: name.startswith(("leaf:", "unit:", "spine")))
    return list(dict.fromkeys(names))


def _works_inside(node: str, evidence: Evidence) -> bool:
    alone = RankGroup((node,))
    results = [figure for measured in evidence.rounds for figure in measured.figures if figure.group == alone]
    return bool(results) and not any(figure.trouble for figure in results)


def _kind(suspect: Suspect) -> Kind:
    if suspect.level:
        return "flapping" if suspect.flaps else "slow"
    figures = [reading.figure for reading in suspect.readings]
    kinds = (each.trouble or ("error" if each.gb_per_s is None else "slow") for each in figures)  # 0 GB/s is a figure
    return cast("Kind", Counter(kinds).most_common(1)[0][0])


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


def _effect(suspect: Suspect, measured: float | None, normal: float | None) -> str:
    return f"{measured:.3g} of {normal:.3g} GB/s" if measured and normal else IN_WORDS[_kind(suspect)]


def _speed_in_words(
    suspect: Suspect, measured: float | None, normal: float | None, partners: tuple[str, ...], readings: Readings
) -> str:
    part, effect = suspect.part, _effect(suspect, measured, normal)
    if part.kind == "leaf":
        return f"{effect} in each of {len(suspect.readings)} transfers over its ports, in {suspect.rounds} rounds"
    if part.kind == "uplink":
        return f"{effect} in each of {len(suspect.readings)} pairs with other units on rail {part.number}"
    units = {readings.fabric.unit_of.get(partner) for partner in partners} - {None}
    where = f" in {len(units)} units" if len(units) > 1 else ""
    scope = {"node": "on every rail ", "together": "with all GPUs "}.get(part.kind, "")
    return f"{effect} {scope}with {len(partners)} partner{'s' * (len(partners) > 1)}{where}"


def _comparison(part: Part, analysis: SuspectAnalysis) -> Iterator[str]:
    """Yield what is healthy next to the part, which rules that out as the cause."""
    readings, fabric = analysis.readings, analysis.readings.fabric
    if part.kind == "nic":
        nics = [Part("nic", part.owner, nic.rail) for nic in fabric.nodes[part.owner].nics]
        suspected = {suspect.part for suspect in (*analysis.confirmed, *analysis.open)}
        rates = [rate for nic in nics if nic not in suspected and (rate := _best(readings.of(nic)))]
        if rates:
            others = "other" if len(nics) - len(rates) == 1 else "healthy"
            low, high = f"{min(rates):.3g}", f"{max(rates):.3g}"
            yield f"its {others} {_rails(len(rates))} {low if low == high else f'{low}-{high}'}"
    elif part.kind == "uplink":
        ports = [Part("nic", node, part.number) for node in fabric.units[part.owner]]
        inside = [r for port in ports for r in readings.of(port) if not _crosses(r, readings) and r.figure.gb_per_s]
        if inside:
            yield "other jobs that load these uplinks steadily would look the same"
            yield f"pairs inside {part.owner} {statistics.median(r.figure.gb_per_s or 0.0 for r in inside):.3g}"


def _rails(count: int) -> str:
    return "rail" if count == 1 else f"{count} rails"


def _best(readings: Iterable[Reading]) -> float:
    return max((reading.figure.gb_per_s or 0.0 for reading in readings), default=0.0)


def _crosses(reading: Reading, readings: Readings) -> bool:
    return len({readings.fabric.unit_of.get(node) for node in reading.figure.group.nodes}) > 1


def _contention(analysis: SuspectAnalysis, counters: CounterEvidence) -> Iterator[Sentence]:
    """Yield the slow pairs whose parts are healthy, by what they crossed and what they reached at other times."""
    by_path: dict[tuple[str, str], list[Reading]] = {}
    times, times_slow = _times(analysis)
    for reading in analysis.unexplained:
        if reading.ratio:
            repeat = _repeat(times[_key(reading)], times_slow[_key(reading)])
            by_path.setdefault((_path(reading, analysis.readings), repeat), []).append(reading)
    for (path, repeat), readings in sorted(by_path.items(), key=lambda item: -len(item[1])):
        low, high = (f"{100 * edge(reading.ratio for reading in readings):.0f}" for edge in (min, max))
        counted = counters.on_path((reading.round_index, reading.figure) for reading in readings)
        about = "; ".join((f"{path}, at {low if low == high else f'{low}-{high}'} % of normal, {repeat}", *counted))
        names = _pair_names(readings)
        yield Sentence(f"{', '.join(names)} {about}", names, about)


def _times(analysis: SuspectAnalysis) -> tuple[Counter[object], Counter[object]]:
    """Count how often each pair was measured, and how often it was slow."""
    pairs = {_key(reading) for reading in analysis.unexplained}
    own = [reading for reading in analysis.readings.between if _key(reading) in pairs]
    return Counter(map(_key, own)), Counter(_key(r) for r in own if analysis.readings.is_slow(r))


def _key(reading: Reading) -> object:
    return frozenset(reading.figure.group.nodes), reading.figure.group.rail


def _repeat(times: int, slow: int) -> str:
    """Return what a pair reached when it was measured again."""
    if times == 1:
        return "measured once"
    return "each time" if slow == times else "not each time"


def _slow_paths(analysis: SuspectAnalysis, evidence: Evidence) -> Iterator[str]:
    """Yield the pairs of units nearly all transfers between which are slow in several rounds, if no part explains it.

    Transfers over crowded links do not count: on a healthy fabric they may be slower than those of other units.
    """
    readings, fabric = analysis.readings, evidence.fabric

    def tells(reading: Reading) -> bool:
        is_crossing = reading.ratio > 0 and _crosses(reading, readings)
        return is_crossing and not is_crowded(reading.figure.group, evidence.rounds[reading.round_index], fabric)

    own = [(_path(reading, readings), reading.round_index) for reading in analysis.unexplained if tells(reading)]
    slow, rounds = Counter(path for path, _ in own), Counter(path for path, _ in set(own))
    every = Counter(_path(reading, readings) for reading in readings.between if tells(reading)) if slow else {}
    for path, count in slow.items():
        is_slow = count >= max(_ENOUGH_ON_PATH, _NEARLY_ALL * every[path]) and rounds[path] > 1
        if is_slow and len(fabric.units) > 2:
            yield f"{count} of {every[path]} transfers {path} are slow: look at what joins these two"


def _in_common(analysis: SuspectAnalysis, evidence: Evidence) -> Iterator[Sentence]:
    """Yield the node, leaf or uplink that all unexplained slow results of two rounds or more have in common.

    One that is slow at times may show no more than that. Among few nodes, pairs share one by chance.
    """
    slow = [reading for reading in analysis.unexplained if reading.ratio]
    groups = group_readings(evidence.fabric, evidence.rounds)
    low = [reading for reading in groups.all if groups.is_low(reading) and not reading.figure.trouble]
    groups_by_round = [(r.round_index, r.figure.group) for r in slow] + [(r.round_index, r.figure.group) for r in low]
    events = [(index, _shared_parts(group, evidence.fabric)) for index, group in groups_by_round]
    rounds = {index for index, _ in events}
    pairs = {(reading.round_index, frozenset(reading.figure.group.nodes)) for reading in slow}
    nodes = len(evidence.fabric.nodes)
    by_chance = nodes * (2 / nodes) ** len(pairs)  # how many nodes are in all of so many pairs
    if not slow or len(rounds) < _ROUNDS_IN_COMMON or by_chance > _BY_CHANCE:
        return
    common = sorted(set.intersection(*(parts for _, parts in events)))
    if 0 < len(common) <= _MAX_IN_COMMON:
        about = f"in all slow results of {len(rounds)} rounds that no part explains; it may be slow at times"
        yield Sentence(f"{' or '.join(common)}: {about}", common, about)


def _shared_parts(group: RankGroup, fabric: Fabric) -> set[str]:
    """Return the nodes of a group, their leaves, and the uplinks that it crosses."""
    rails = fabric.rails if group.rail is None else (group.rail,)
    ports = [(name, rail) for name in group.nodes for rail in rails]
    parts = {Part("leaf", fabric.leaf_of[port]) for port in ports if port in fabric.leaf_of}
    units = {fabric.unit_of.get(name) for name in group.nodes}
    if len(units) > 1:
        parts |= {Part("uplink", unit, rail) for unit in units if unit is not None for rail in rails}
    return {*group.nodes, *(part.name(fabric) for part in parts)}


def _path(reading: Reading, readings: Readings) -> str:
    units = sorted({readings.fabric.unit_of.get(node, "") for node in reading.figure.group.nodes} - {""})
    if len(units) == 2:
        return f"between {units[0]} and {units[1]}"
    return f"inside {units[0]}" if units else "between nodes with unknown leaves"


def _pairs(readings: Sequence[Reading]) -> str:
    """Return the pairs of ``readings``, with the number of those that are not named."""
    names = _pair_names(readings)
    more = f" and {len(names) - _MAX_PAIRS} more pairs" if len(names) > _MAX_PAIRS else ""
    return f"{', '.join(names[:_MAX_PAIRS])}{more}"


def _pair_names(readings: Sequence[Reading]) -> list[str]:
    return list(dict.fromkeys(map(_pair, readings)))


def _pair(reading: Reading) -> str:
    group = reading.figure.group
    return " and ".join(group.nodes) + (f" on rail {group.rail}" if group.rail is not None else "")


def _unrepeated(analysis: SuspectAnalysis) -> Iterator[Sentence]:
    """Yield the pairs that failed without a part that explains it, those with the same words together."""
    by_words: dict[str, list[Reading]] = {}
    for reading in analysis.unexplained:
        if not reading.ratio:
            failure = IN_WORDS[reading.figure.trouble or "error"]
            words = ": ".join(filter(None, (failure, reading.figure.detail)))
            by_words.setdefault(words, []).append(reading)
    for words, readings in by_words.items():
        about = f"{words}; the same nodes were healthy with other partners"
        yield Sentence(f"{_pairs(readings)}: {about}", _pair_names(readings), about)


def _undecided(analysis: SuspectAnalysis, evidence: Evidence) -> Iterator[Sentence]:
    """Yield the suspects that are likely at fault, but not sure enough to be blamed."""
    for suspect in analysis.open:
        certainty = suspect.certainty
        if _is_likely(suspect):
            needed = math.log(suspect.probability / evidence.confidence) + certainty.log_e
            more = rounds_to_decide(certainty, needed)
            what = f"may be slow by {100 * certainty.slow_by:.0f} %" if suspect.level else "may be at fault"
            words = "".join(f" ({detail})" for detail in own_words(reading.figure for reading in suspect.readings)[:1])
            parts = [part.name(evidence.fabric) for part in (suspect.part, *suspect.alternatives)]
            text = f"{' or '.join(parts)} {what}{words}; {more_rounds(more)} would decide"
            yield Sentence(text, parts, _UNSURE if suspect.level else _UNSURE_FAILURE)


def _is_likely(suspect: Suspect) -> bool:
    return suspect.certainty.log_e > (0.0 if suspect.flaps else math.log(_WORTH_SAYING))


_UNSURE = "may be slow, but this is not sure enough to blame; more rounds would decide"
_UNSURE_FAILURE = "may be at fault, but this is not sure enough to blame; more rounds would decide"
_SHARED = (
    "slow like others of the rail, so the fault is in what they share, a leaf or its uplinks; declare the leaf of each "
    "port (fabric:) to have it named"
)


def _shared(analysis: SuspectAnalysis) -> Iterator[Sentence]:
    fabric = analysis.readings.fabric
    suspects_by_rail: dict[int, list[Suspect]] = {}
    for suspect in analysis.shared:
        suspects_by_rail.setdefault(suspect.part.number, []).append(suspect)
    for rail, suspects in sorted(suspects_by_rail.items()):
        names = ", ".join(suspect.part.owner for suspect in suspects)
        where = f", rail {rail}" if rail >= 0 else ""
        text = f"{names}{where}: {_SHARED}"
        yield Sentence(text, [suspect.part.name(fabric) for suspect in suspects], _SHARED)
