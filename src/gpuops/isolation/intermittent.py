"""NICs and uplinks that are slow or fail in some rounds and are healthy in others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gpuops.isolation.certainty import Certainties
from gpuops.isolation.parts import Part
from gpuops.isolation.readings import Reading, Readings

ROUNDS_TO_FLAP = 3
"""A part must be slow in this many rounds; one that is slow less often is not worth a repair."""
_WORTH_A_ROUND = math.log(0.02)
"""A part that was slow at times is measured again unless a healthy one is 50 times likelier to show that."""
_RARE = 1 / 32
_SHARE_OF_TRANSFERS = 1 / 2
"""An uplink is suspected if this share of its transfers of one round were slow ..."""
_SHARE_OF_UPLINKS, _FEW = 1 / 8, 2
"""... and few others are: where transfers collide, more than these are, in several units and on several rails."""

Found = tuple[Part, tuple[Reading, ...]]
"""A part with its slow readings."""


def intermittent(
    slow: Sequence[Reading], excluded: Collection[Part], readings: Readings, certainties: Certainties
) -> Iterator[Found]:
    """Yield the parts of which ``slow`` readings, which no other part explains, are more than healthy parts show."""
    uplinks = list(_uplinks(slow, excluded, readings, certainties))
    yield from uplinks
    crossing = {reading for _, own in uplinks for reading in own}
    yield from _nics([reading for reading in slow if reading not in crossing], excluded, readings, certainties)


def _nics(
    slow: Iterable[Reading], excluded: Collection[Part], readings: Readings, certainties: Certainties
) -> Iterator[Found]:
    """Yield NICs, those with most slow rounds first; they take their readings from their partners.

    A slow transfer between units counts as a reason to measure again if hardly any other in its round was slow.
    """
    rare = {index for index, share in readings.slow_shares.items() if share <= _RARE}
    usable = (r for r in slow if (r.round_index in rare if readings.crosses(r) else readings.is_evidence("nic", r)))
    by_nic = _by_part(usable, lambda reading: _nics_of(reading, readings))
    taken = set[Reading]()
    for part, own in sorted(by_nic.items(), key=lambda item: (-len(item[1]), item[0])):
        free = tuple(reading for reading in own if reading not in taken)
        if free and part not in excluded and _is_worth_a_round(part, free, readings, certainties):
            if len({reading.round_index for reading in free if not readings.crosses(reading)}) >= ROUNDS_TO_FLAP:
                taken.update(free)
            yield part, free


def _uplinks(
    slow: Iterable[Reading], excluded: Collection[Part], readings: Readings, certainties: Certainties
) -> Iterator[Found]:
    by_uplink = _by_part((r for r in slow if r.ratio and readings.crosses(r)), lambda r: _uplinks_of(r, readings))
    likely = {part: own for part, own in by_uplink.items() if part not in excluded and _are_many(own, part, readings)}
    likely = _without_partners(likely, by_uplink)
    if have_common_cause(likely, readings):
        return
    uplinks_by_rail = Counter(part.number for part in likely)
    for part, own in sorted(likely.items()):
        if uplinks_by_rail[part.number] == len(readings.fabric.units) > _FEW:
            continue  # those of all units: the rail's spine carries other traffic
        if certainties.of(part).log_e > _WORTH_A_ROUND:
            yield part, tuple(own)


def _without_partners(
    likely: Mapping[Part, list[Reading]], by_uplink: Mapping[Part, Collection[Reading]]
) -> dict[Part, list[Reading]]:
    """Return the likely uplinks, of each rail only the one that all slow transfers cross, if there is one.

    Each other end of its transfers looks slow at times, too.
    """
    slow_on: dict[int, set[Reading]] = {}
    for part, own in by_uplink.items():
        slow_on.setdefault(part.number, set()).update(own)
    common = {part for part, own in likely.items() if slow_on[part.number] <= set(own)}
    alone = {rail for rail in slow_on if sum(part.number == rail for part in common) == 1}
    return {part: own for part, own in likely.items() if part in common or part.number not in alone}


def have_common_cause(uplinks: Collection[Part], readings: Readings) -> bool:
    """Return True if so many uplinks are hardly at fault: more than a few, most of which share no unit or rail.

    Between two units, all rails may be slow because of the spine.
    """
    units, rails = readings.fabric.units, readings.fabric.rails
    if len(units) == 2 and {part.number for part in uplinks} == set(rails):
        return True
    every = len(units) * len(rails)
    if len(uplinks) <= max(_FEW, _SHARE_OF_UPLINKS * every):
        return False
    switches = (Counter(part.owner for part in uplinks), Counter(part.number for part in uplinks))
    return 2 * max(max(counts.values()) for counts in switches) <= len(uplinks)


def _are_many(own: Iterable[Reading], uplink: Part, readings: Readings) -> bool:
    """Return True if the transfers over the uplink were slow together in some round, or single ones in several."""
    slow = Counter(reading.round_index for reading in own)
    every = Counter(reading.round_index for reading in readings.of(uplink))
    together = [every[index] for index, count in slow.items() if count >= _SHARE_OF_TRANSFERS * every[index]]
    return len(together) > 1 or max(together, default=0) > 1


def _is_worth_a_round(part: Part, own: Sequence[Reading], readings: Readings, certainties: Certainties) -> bool:
    certainty = certainties.of(part)
    is_clear = all(map(readings.crosses, own)) or certainty.slow_by > readings.tolerance / 2
    return is_clear and certainty.log_e > _WORTH_A_ROUND


def _nics_of(reading: Reading, readings: Readings) -> Iterator[Part]:
    """Yield the NICs that the reading crosses, as far as it is known what they share."""
    rail = reading.figure.group.rail
    if rail is not None:
        ports = ((node, rail) for node in reading.figure.group.nodes)
        yield from (Part("nic", *port) for port in ports if port in readings.fabric.leaf_of)


def _uplinks_of(reading: Reading, readings: Readings) -> Iterator[Part]:
    rail, unit_of = reading.figure.group.rail, readings.fabric.unit_of
    if rail is not None:
        yield from {Part("uplink", unit_of[node], rail) for node in reading.figure.group.nodes if node in unit_of}


def _by_part(readings: Iterable[Reading], parts_of: Callable[[Reading], Iterable[Part]]) -> dict[Part, list[Reading]]:
    by_part: dict[Part, list[Reading]] = {}
    for reading in readings:
        for part in parts_of(reading):
            by_part.setdefault(part, []).append(reading)
    return by_part
