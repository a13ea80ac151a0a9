"""Groups that failed or were slow although no node explains it; they are always reported."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence

from gpuops.errors import format_count
from gpuops.isolation.evidence import IN_WORDS, Measured, Sentence
from gpuops.isolation.groups.readings import GroupReadings
from gpuops.isolation.rounds import GroupResult

_MAX_PAIRS = 3
"""More pairs than this, each of which would explain the failures, say nothing."""
_MAX_COMPARED = 256


def unexplained_failures(rounds: Sequence[Measured], blamed: Collection[str]) -> Iterator[Sentence]:
    """Yield a sentence for the failed groups without a ``blamed`` node, those with the same words together."""
    figures = [f for measured in rounds if measured.round.scope == "group" for f in measured.figures]
    figures = [figure for figure in figures if set(blamed).isdisjoint(figure.group.nodes)]
    healthy = [figure for figure in figures if not figure.trouble]
    by_words: dict[str, list[GroupResult]] = {}
    for figure in figures:
        if figure.trouble:
            by_words.setdefault(": ".join(filter(None, (IN_WORDS[figure.trouble], figure.detail))), []).append(figure)
    for words, failed in by_words.items():
        yield _sentence(words, failed, healthy)


def slow_at_times(readings: GroupReadings, explained: Collection[str]) -> tuple[tuple[Sentence, ...], int]:
    """Return a sentence on the slow groups without ``explained`` nodes, if there are any, and their number."""
    own = [r for r in readings.all if set(explained).isdisjoint(r.nodes) and not r.figure.trouble]
    low = [reading for reading in own if readings.is_low(reading)]
    if not low:
        return (), 0
    ends = [f"{100 * math.exp(edge(reading.u for reading in low)):.0f}" for edge in (min, max)]
    percent = ends[0] if ends[0] == ends[1] else "-".join(ends)
    about = f"{len(low)} of {format_count(len(own), 'group')}, at {percent} % of normal; no node explains it"
    return (Sentence(about, [about], about),), len(low)


def _sentence(words: str, failed: Sequence[GroupResult], healthy: Sequence[GroupResult]) -> Sentence:
    common = [name for name in failed[0].group.nodes if all(name in figure.group.nodes for figure in failed)]
    sizes = sorted({len(figure.group.nodes) for figure in failed})
    size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    groups = f"a group of {size} nodes" if len(failed) == 1 else f"{len(failed)} groups of {size} nodes"
    about = f"{groups}: {words}; {_reason(common, healthy)}"
    return Sentence(about, _parts(common, failed), about)


def _parts(common: Sequence[str], failed: Sequence[GroupResult]) -> Sequence[str]:
    """Return the nodes that all failed groups share, else those of all of them."""
    return common or list(dict.fromkeys(name for figure in failed for name in figure.group.nodes))


def _reason(common: Sequence[str], healthy: Sequence[GroupResult]) -> str:
    """Return what the nodes that all failed groups share did in healthy groups."""
    together = [set(figure.group.nodes) for figure in healthy]
    if len(common) <= _MAX_COMPARED:
        well = set().union(*together)
        if never := [name for name in common if name not in well]:
            return (
                f"{' and '.join(never)} worked in no group" if len(never) <= _MAX_PAIRS else "no group of them worked"
            )
        pairs = [
            pair for pair in itertools.combinations(common, 2) if not any(names.issuperset(pair) for names in together)
        ]
        if 0 < len(pairs) <= _MAX_PAIRS:
            return f"{' or '.join(map(' with '.join, pairs))}: in no group that worked"
    return "its nodes worked in other groups"
