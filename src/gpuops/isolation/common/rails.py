"""Rails that are slower than the others for nearly all nodes: a finding on the fleet, which blames no leaf or NIC."""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpuops.isolation.evidence import CommonCause, Evidence, Kind, Measured, Where
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.readings import kind_of, level_of
from gpuops.isolation.rounds import GroupResult, own_words
from gpuops.isolation.spread import log_e_needed, usual_share

SLOW = 0.94
"""Below this fraction of the other rails, a rail is a finding: comparable groups agree within 1 to 2 %."""
_UNLIKE = 0.98
"""Below this fraction its parts are compared with one another: rails of one machine may differ."""
_NEARLY_ALL = 0.9
"""If half of the nodes are slow on a rail, three in four of its pairs are: those NICs can be distinguished."""
_MOST = 3 / 4
_ENOUGH_OTHERS, _ENOUGH_TRANSFERS, _ENOUGH_ROUNDS = 3, 8, 2
_ALIKE = 0.04
"""A rail is steadily slow if most of its results differ from their median by no more than this."""
_COLLIDING = 0.05
"""Where more of the other rails' transfers between units are slow, routes collide, and on some rail all of them may."""
_LARGEST_LOG_RATIO = math.log(100)
"""No transfer counts for more than 100 to 1."""


class _Transfer(NamedTuple):
    """A transfer on one rail: the fraction that it reached of the level of the other rails in its round, in GB/s."""

    round_index: int
    figure: GroupResult
    ratio: float
    level: float

    @property
    def rail(self) -> int:
        """The rail."""
        return self.figure.group.rail or 0


class SlowRail(NamedTuple):
    """A rail that nearly all nodes find slow, within units too or only between them; ``kept`` is the usual fraction."""

    cause: CommonCause
    kept: float

    @property
    def is_finding(self) -> bool:
        """True if the rail is slower than machines of one type differ by themselves."""
        return self.kept < SLOW


def slow_rails(evidence: Evidence) -> Iterator[SlowRail]:
    """Yield the slow rails; one that is slow within units is not reported between them again."""
    found = set[int]()
    places: tuple[tuple[Where, bool], ...] = (("between nodes", False), ("between units", True))
    for where, crosses in places:
        transfers_by_rail: dict[int, list[_Transfer]] = {}
        for index, measured in enumerate(evidence.rounds):
            for transfer in _transfers(index, measured, evidence.fabric, crosses=crosses):
                transfers_by_rail.setdefault(transfer.rail, []).append(transfer)
        low, count = _count_low(transfers_by_rail.values())
        for rail, own in transfers_by_rail.items():
            own_low, _ = _count_low([own])
            others_low = usual_share(low - own_low, max(1, count - len(own)))
            if rail not in found and _is_common(own, others_low, evidence, crosses=crosses):
                found.add(rail)
                yield _slow_rail(rail, where, own)


def failing_rails(evidence: Evidence) -> Iterator[CommonCause]:
    """Yield each trouble that all transfers of a rail have, or all between units, of one rail or of all rails."""
    tried, failed = Counter[_Place](), dict[tuple[_Place, Kind], list[GroupResult]]()
    figures = [f for m in evidence.rounds if m.round.scope == "rail" for f in m.figures if len(f.group.nodes) > 1]
    for figure in figures if any(figure.trouble for figure in figures) else ():
        crosses = evidence.fabric.leaves_block(figure.group.nodes)
        for place in {(rail, side) for rail in (figure.group.rail, None) for side in (crosses, None)} - {(None, None)}:
            tried[place] += 1
            if figure.trouble:
                failed.setdefault((place, figure.trouble), []).append(figure)
    found = set[int | None]()
    for (rail, side), trouble in sorted(failed, key=lambda key: (key[0][0] is not None, key[0][1] is not None)):
        own = failed[(rail, side), trouble]
        nodes = tuple(dict.fromkeys(name for figure in own for name in figure.group.nodes))
        blocks = {evidence.fabric.block_of[name] for name in nodes}
        is_whole = len(own) == tried[rail, side] >= _ENOUGH_TRANSFERS and len(blocks) > 1 + bool(side)
        if side is not False and is_whole and not {rail, None} & found:
            found.add(rail)
            where: Where = "between units" if side else "between nodes"
            yield CommonCause(trouble, where, nodes, len(nodes), evidence=own_words(own), rail=rail)


_Place = tuple["int | None", "bool | None"]
"""A rail (None: all), and whether its transfers cross units (None: all of them)."""


def without_slow_rail(evidence: Evidence, slow: SlowRail) -> Evidence:
    """Return the evidence in which the rail is compared with itself alone; without its results if those vary."""
    rail = slow.cause.rail
    if rail is None:
        return evidence
    if slow.cause.kind == "slow":
        return replace(evidence, fabric=evidence.fabric.with_slower_rail(rail, slow.kept))
    rounds = (m.keeping(lambda f: f.group.rail != rail or bool(f.trouble)) for m in evidence.rounds)
    return replace(evidence, rounds=tuple(rounds))


def _slow_rail(rail: int, where: Where, own: Sequence[_Transfer]) -> SlowRail:
    kept = statistics.median(transfer.ratio for transfer in own)
    kind: Kind = "slow" if _are_alike(own) else "flapping"
    nodes = dict.fromkeys(name for transfer in own for name in transfer.figure.group.nodes)
    healthy = {name for transfer in own if not _is_low(transfer) for name in transfer.figure.group.nodes}
    level = statistics.median(transfer.level for transfer in own)
    slow = tuple(name for name in nodes if name not in healthy) or tuple(nodes)
    return SlowRail(CommonCause(kind, where, slow, len(nodes), kept * level, level, rail=rail), round(kept, 3))


def _is_common(own: Sequence[_Transfer], usual: float, evidence: Evidence, *, crosses: bool) -> bool:
    """Return True if nearly all transfers of the rail are low, in each round and unit, and no single leaf is why."""
    fabric = evidence.fabric
    by_round, by_block = dict[int, list[_Transfer]](), dict[int, list[_Transfer]]()
    for transfer in own:
        by_round.setdefault(transfer.round_index, []).append(transfer)
        for block in {fabric.block_of[name] for name in transfer.figure.group.nodes}:
            by_block.setdefault(block, []).append(transfer)
    if len(own) < _ENOUGH_TRANSFERS or len(by_round) < _ENOUGH_ROUNDS or len(by_block) < 2 + crosses:
        return False  # with two units, it may be the uplinks of one
    if crosses and usual > _COLLIDING:
        return False
    low, _ = _count_low([own])
    log_e = low * min(_LARGEST_LOG_RATIO, -math.log(usual))
    is_sure = log_e > log_e_needed(evidence.confidence, len(fabric.rails))
    if not _are_alike(own) and all(map(_are_alike, by_block.values())):
        return False  # each unit has a degree of its own: several faults
    return is_sure and all(map(_are_nearly_all_low, (*by_round.values(), *by_block.values())))


def _are_alike(transfers: Sequence[_Transfer]) -> bool:
    middle = statistics.median(transfer.ratio for transfer in transfers)
    return sum(abs(transfer.ratio / middle - 1) <= _ALIKE for transfer in transfers) >= _MOST * len(transfers)


def _are_nearly_all_low(transfers: Sequence[_Transfer]) -> bool:
    low, count = _count_low([transfers])
    return low >= _NEARLY_ALL * count


def _count_low(groups: Iterable[Sequence[_Transfer]]) -> tuple[int, int]:
    every = [transfer for own in groups for transfer in own]
    return sum(map(_is_low, every)), len(every)


def _is_low(transfer: _Transfer) -> bool:
    return transfer.ratio < _UNLIKE


@functools.lru_cache(maxsize=64)
def _transfers(index: int, measured: Measured, fabric: Fabric, *, crosses: bool) -> tuple[_Transfer, ...]:
    """Return the transfers inside units, or between them, next to those of the other rails in the same round."""
    if measured.round.scope != "rail":
        return ()
    rates_by_rail: dict[int, list[tuple[GroupResult, float, float]]] = {}
    for figure in measured.figures:
        if len(figure.group.nodes) < 2:
            continue
        _, line, is_crossing = kind_of(figure.group, fabric)
        if figure.gb_per_s and not figure.trouble and is_crossing is crosses:
            line = float(line) or 1.0  # type: ignore[arg-type]
            rates_by_rail.setdefault(figure.group.rail or 0, []).append((figure, figure.gb_per_s / line, line))
    found = []
    for rail, own in rates_by_rail.items():
        others = sorted(rate for other, rates in rates_by_rail.items() if other != rail for _, rate, _ in rates)
        level = level_of(others) if len(others) >= _ENOUGH_OTHERS else 0.0
        if level:
            found += [_Transfer(index, figure, rate / level, level * line) for figure, rate, line in own]
    return tuple(found)
