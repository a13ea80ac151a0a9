"""What groups show but pairs do not: stragglers, slow units, and what remains unclear."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from gpuops.isolation.evidence import IN_WORDS, Blame, BlamedPart, Evidence, Kind
from gpuops.isolation.groups.dealing import Nodes
from gpuops.isolation.groups.searching import TIMES
from gpuops.isolation.groups.stragglers import VARYING, Suspicion
from gpuops.isolation.groups.unexplained import slow_at_times, unexplained_failures
from gpuops.isolation.groups.view import GroupView, SlowUnit
from gpuops.isolation.rounds import own_words

_MAX_NAMES = 16
_LEAVES = "the leaf of each port is unknown (fabric:)"


def blame_groups(evidence: Evidence, doubted: Collection[str] = ()) -> Blame:
    """Return what groups show but pairs do not; ``doubted`` nodes were slow at times, in pairs of their unit."""
    groups = GroupView(evidence)
    if not groups.rounds:
        return Blame()
    units = [_blame_unit(groups, unit, doubted) for unit in groups.slow_units]
    explained = groups.stragglers.nodes.union(*(unit.group.nodes for unit in groups.slow_units))
    at_times, count = slow_at_times(groups.readings, explained)
    is_usual = count < TIMES or groups.readings.disturbed_crossing(groups.readings.all) > VARYING
    return Blame(
        (
            *(_straggler(suspicion) for suspicion in groups.stragglers.sure),
            *(part for part in units if isinstance(part, BlamedPart)),
        ),
        contention=at_times if is_usual else (),
        unclear=(
            *(() if is_usual else at_times),
            *_unsure(groups.stragglers.open),
            *(sentence for sentence in units if isinstance(sentence, str)),
            *_unclear_whole(groups),
            *_unclear_rest(groups),
            *unexplained_failures(groups.rounds, {suspicion.node for suspicion in groups.stragglers.sure}),
        ),
    )


def _straggler(suspicion: Suspicion) -> BlamedPart:
    found, normal, words = _speeds(suspicion)
    details = own_words(reading.figure for reading in suspicion.readings)
    sentences = (words, *details, "others of the same size are healthy without it, and so are its pairs")
    return BlamedPart(
        suspicion.node, _kind(suspicion), found, normal, evidence=sentences, probability=suspicion.probability
    )


def _speeds(suspicion: Suspicion) -> tuple[float | None, float, str]:
    """Return the typical GB/s of its groups and of healthy ones, and both in words."""
    rates = [reading.figure.gb_per_s for reading in suspicion.readings if reading.figure.gb_per_s]
    found = statistics.median(rates) if rates else None
    normal = statistics.median(reading.level for reading in suspicion.readings)
    sizes = sorted(len(reading.nodes) for reading in suspicion.readings)
    nodes = f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
    speed = IN_WORDS[_kind(suspicion)] if found is None else f"{found:.3g} of {normal:.3g} GB/s"
    count = len(suspicion.readings)
    return found, normal, f"{speed} in {count} group{'s' * (count > 1)} of {nodes} nodes with it"


def _kind(suspicion: Suspicion) -> Kind:
    troubles = Counter(reading.figure.trouble for reading in suspicion.readings if reading.figure.trouble)
    return troubles.most_common(1)[0][0] if troubles else "slow"


def _unsure(suspicions: Iterable[Suspicion]) -> Iterator[str]:
    """Yield a sentence for each likely straggler; one for those that the same nodes or units would explain."""
    waiting = list(suspicions)
    while waiting:
        first, *rest = waiting
        own = {*first.candidates, *first.units}
        alike = [first, *(other for other in rest if not own.isdisjoint((*other.candidates, *other.units)))]
        waiting = [other for other in rest if other not in alike]
        names = list(dict.fromkeys(name for suspicion in alike for name in suspicion.candidates))
        units = [unit for unit in first.units if all(unit in other.units for other in alike)]
        which = names[0] if len(names) == 1 else f"some of {len(names)} nodes ({_listed(names)})"
        joins = f", or what joins {' or '.join(units)} to others" if units else ""
        joins = ", or slow paths between units" if first.may_be_paths and not units else joins
        yield f"{which} may slow large groups{joins}: {_speeds(first)[2]}; more rounds would decide"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"


def _blame_unit(groups: GroupView, unit: SlowUnit, doubted: Collection[str]) -> BlamedPart | str:
    """Return the leaves of a unit that is slow only with all of its nodes, or what is known."""
    nodes = unit.group.nodes
    found = statistics.median(reading.figure.gb_per_s or 0.0 for reading in unit.readings)
    normal = statistics.median(reading.level for reading in unit.readings)
    name = groups.fabric.unit_of.get(nodes[0])
    where = f"unit {name}" if name else "one unit"
    summary = f"{len(nodes)} nodes of {where} together: {found:.3g} of {normal:.3g} GB/s, {_times(len(unit.readings))}"
    if name is None:
        return f"{summary}; {_LEAVES}"
    first, *others = (f"leaf:{leaf}" for leaf in groups.fabric.nodes[nodes[0]].leaves)
    are_healthy = set(nodes) <= set(_healthy_in_parts(groups, nodes)) and set(doubted).isdisjoint(nodes)
    if unit.probability > groups.evidence.confidence or not are_healthy:
        leaves = ", ".join((first, *others))
        return f"{summary}, although its pairs are healthy: one of its nodes slows groups, or {leaves} under full load"
    sentences = (summary, "each of its nodes is healthy in large groups without some others of the unit")
    return BlamedPart(first, "slow", found, normal, (), 1, sentences, tuple(others), unit.probability)


def _healthy_in_parts(groups: GroupView, unit: Nodes) -> Iterator[str]:
    """Yield the nodes of a unit that were in healthy groups without all others of it."""
    for reading in groups.stragglers.counted:
        if not groups.readings.is_low(reading) and not set(unit) <= set(reading.nodes):
            yield from set(unit) & set(reading.nodes)


def _unclear_rest(groups: GroupView) -> Iterator[str]:
    """Yield that groups are slow without the blamed stragglers, too: in all of them there may be another one."""
    sure = [suspicion.node for suspicion in groups.stragglers.sure]
    rest = [f.group for m in groups.rounds for f in m.figures if set(sure).isdisjoint(f.group.nodes) and not f.trouble]
    largest = max(rest, key=lambda group: len(group.nodes), default=None)
    if sure and largest is not None and not groups.stragglers.open and groups.is_slow(largest):
        speed = f"{groups.best(largest):.3g} of {groups.normal(largest)[0]:.3g} GB/s"
        yield f"{len(largest.nodes)} nodes without {_listed(sure)}: {speed}; measure again without {_listed(sure)}"


def _unclear_whole(groups: GroupView) -> Iterator[str]:
    """Yield why all nodes together are slow, if no node is the reason."""
    whole = groups.whole
    if whole is None or not groups.stragglers.nodes.isdisjoint(whole.nodes) or not groups.is_slow(whole):
        return
    if all(run.trouble for run in groups.runs(whole)):
        return  # reported in its own words
    runs, normal = groups.runs(whole), groups.normal(whole)[0]
    summary = f"{len(whole.nodes)} nodes together: {groups.best(whole):.3g} of {normal:.3g} GB/s, {_times(len(runs))}"
    reason = "no node explains it: the cause is what joins them (the spine), the size, or several nodes"
    yield summary if len(runs) < TIMES else f"{summary}; {reason}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
