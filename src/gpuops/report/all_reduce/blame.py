"""What an isolation blames and what it leaves open, for every report of one: a screen at most, however many nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from gpuops.collective.scope_lines import ScopeLine
from gpuops.isolation.evidence import Blame, BlamedPart, CommonCause, Sentence
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.remedies import fix_for, fix_in_common
from gpuops.report.page import Page, clean, fold, fold_briefly

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_LABEL = 12
_MAX_BLOCKS = 5
"""More blamed parts than this share one block, with a line for those that are alike ..."""
_MAX_ROWS = 12
"""... and no more lines than this."""
_MAX_SENTENCES, _MAX_FIXES = 8, 3
_MAX_PATHS = 5
_MAX_PAIRS = 2
_LIST = 200
"""Characters of a list of names: no list takes more than three lines."""
_MANY = "--json has the evidence of each"
_NO_PART = "no part is blamed for this"


def blocks(blame: Blame, fabric: Fabric, page: Page, fix: Callable[[BlamedPart], str] = fix_for) -> Iterator[list[str]]:
    """Yield a block of lines for each cause of the whole fleet and for each blamed part, or one for many parts.

    ``fix`` is `action_for` for a fabric that is not that of an inventory: a command to verify it would find no node.
    """
    yield from ([*_common(cause, page)] for cause in blame.fleet)
    if len(blame.blamed) > _MAX_BLOCKS:
        yield [*_many(blame.blamed, page, fix)]
    else:
        yield from ([*_blamed(part, fabric, page, fix)] for part in blame.blamed)


def tail(blame: Blame, page: Page, *, low: Iterable[ScopeLine] = (), interrupted: bool = False) -> Iterator[str]:
    """Yield what is low everywhere, slow once, or unclear, and whether any part is blamed at all."""
    for line in low:
        yield from page.labelled("low", f"{line.label}: all are low; look for what the nodes have in common", _LABEL)
    for text in _contention(blame.contention):
        yield from page.labelled("contention", clean(text), _LABEL)
    is_well = not (blame.is_failed or blame.is_incomplete or interrupted)
    if blame.contention and not is_well:  # else the last line says it
        yield from page.labelled("", _NO_PART, _LABEL)
    for text in _unclear(blame.unclear):
        yield from page.labelled("unclear", clean(text), _LABEL)
    explained = {part for each in blame.unclear if isinstance(each, Sentence) for part in each.parts}
    if suspects := [part for part in blame.suspects if part not in explained]:
        yield from page.labelled("suspects", clean(f"{fold_briefly(suspects, _LIST)}: not confirmed"), _LABEL)
    if interrupted:
        yield "interrupted before all rounds had run; this result is incomplete"
    elif is_well:
        yield "no part is blamed"


def part_in_words(part: str, fabric: Fabric) -> str:
    """Return the display name of a part: ``gpu017 mlx5_3 (rail 3)``, ``leaf L3 (gpu[001-016])``."""
    owner, _, name = part.partition(":")
    if owner == "leaf":
        behind = [n.name for n in fabric.nodes.values() if any(nic.leaf == name for nic in n.nics)]
        return f"leaf {name} ({fold_briefly(behind, _LIST)})" if behind else f"leaf {name}"
    if owner == "unit":
        unit, _, rail = name.partition("/rail")
        return f"rail {rail} of unit {unit} ({fold_briefly(fabric.units.get(unit, ()), _LIST)})"
    return f"{owner} {_within(owner, name, fabric)}".strip()


def _within(node: str, name: str, fabric: Fabric) -> str:
    """Return the display name of a part of a node."""
    nics = fabric.nodes[node].nics if node in fabric.nodes else ()
    rail = next((nic.rail for nic in nics if nic.name == name), None)
    if rail is not None:
        return f"{name} (rail {rail})"
    return f"GPU {name[3:]} (its NVLink)" if name.startswith("gpu") else name


def _common(cause: CommonCause, page: Page) -> Iterator[str]:
    yield from page.edges(clean(f"FLEET  {cause.place}"), cause.kind)
    nodes = () if len(cause.nodes) == cause.tested else (fold_briefly(cause.nodes, _LIST),)
    for sentence in (cause.what, *cause.evidence, *nodes):
        yield from page.labelled("  ", clean(sentence), 2)
    yield from page.labelled("  do", clean(fix_in_common(cause)), 6)


def _blamed(blamed: BlamedPart, fabric: Fabric, page: Page, fix: Callable[[BlamedPart], str]) -> Iterator[str]:
    parts = [part_in_words(part, fabric) for part in (blamed.part, *blamed.alternatives)]
    yield from page.edges(clean(f"BLAMED  {' or '.join(parts)}"), blamed.kind)
    for sentence in filter(None, (*blamed.evidence, blamed.doubt)):
        yield from page.labelled("  ", clean(sentence), 2)
    yield from page.labelled("  do", clean(fix(blamed)), 6)


def _many(blamed: Sequence[BlamedPart], page: Page, fix: Callable[[BlamedPart], str]) -> Iterator[str]:
    """Yield one block for many parts: those of one kind and place together, and the fix for one of each sort."""
    yield from page.edges(f"BLAMED  {len(blamed)} parts", _MANY)
    rows = [row for each in _grouped(blamed, lambda each: each.kind).values() for row in _rows(each)]
    for text in rows[:_MAX_ROWS]:
        yield from page.labelled("  ", clean(text), 4)
    if len(rows) > _MAX_ROWS:
        yield f"  and {len(rows) - _MAX_ROWS} more lines"
    doubts = [each for each in blamed if each.probability is not None]
    if doubts:
        most = max(doubts, key=lambda each: each.probability or 0.0)
        yield from page.labelled("  ", f"each: {most.doubt}", 2)
    sorts = _grouped(blamed, lambda each: (each.kind, _sort(each.part)))
    for (kind, _), own in list(sorts.items())[:_MAX_FIXES]:
        yield from page.labelled("  do", clean(f"{kind}, such as {own[0].part}: {fix(own[0])}"), 6)


def _sort(part: str) -> str:
    """Return what kind of part it is: parts of one sort have the same fix."""
    owner, _, name = part.partition(":")
    return owner if owner in {"leaf", "unit", "spine"} else name.rstrip("0123456789")


def _rows(blamed: Sequence[BlamedPart]) -> Iterator[str]:
    """Yield the parts of one kind, each with its alternatives or together with those in the same places."""
    alone = {each.part: each for each in blamed if not each.alternatives}
    for names, parts in _places(list(alone)):
        yield f"{names}: {_speeds([alone[part] for part in parts])}"
    for each in blamed:
        if each.alternatives:
            yield f"{' or '.join((each.part, *each.alternatives))}: {_speeds([each])}"


def _speeds(parts: Sequence[BlamedPart]) -> str:
    """Return the kind of the parts, and their rates if they were measured."""
    measured = [(each.found_gb_per_s, each.expected_gb_per_s) for each in parts]
    found, expected = ([rate for rate in rates if rate is not None] for rates in zip(*measured, strict=True))
    speed = f", {_span(found)} of {_span(expected)} GB/s" if found and expected else ""
    return f"{parts[0].kind}{speed}"


def _span(rates: Sequence[float]) -> str:
    low, high = f"{min(rates):.3g}", f"{max(rates):.3g}"
    return low if low == high else f"{low}-{high}"


def _unclear(sentences: Iterable[str]) -> Iterator[str]:
    """Yield the sentences, those that say the same about different parts as one."""
    groups = list(_grouped(sentences, _gist).values())
    for own in groups[:_MAX_SENTENCES]:
        first = own[0]
        names = list(dict.fromkeys(part for each in own if isinstance(each, Sentence) for part in each.parts))
        is_one = len(own) == 1 and len(names) <= _MAX_BLOCKS
        yield f"{first.about}: {_parts(names)}" if isinstance(first, Sentence) and not is_one else first
    if len(groups) > _MAX_SENTENCES:
        yield f"{len(groups) - _MAX_SENTENCES} more: --json lists them"


def _gist(sentence: str) -> str:
    """Return what sentences about different parts share: words of one failure differ in ranks, ports and addresses."""
    return re.sub(r"\d+", "0", sentence.about) if isinstance(sentence, Sentence) else sentence


def _parts(names: Sequence[str]) -> str:
    """Return many parts or pairs, shortened."""
    if any(" " in name for name in names):
        return f"{len(names):,} pairs, such as {names[0]}"
    places = [words for words, _ in _places(names)]
    more = f"; and {len(places) - _MAX_SENTENCES} more groups" if len(places) > _MAX_SENTENCES else ""
    count = f"{len(names)} parts, " if len(names) > _MAX_BLOCKS else ""
    return f"{count}{'; '.join(places[:_MAX_SENTENCES])}{more}"


def _places(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return the nodes that have the same parts, folded with these parts, and the parts; the most parts first."""
    parts_by_owner = _grouped(names, lambda name: name.partition(":")[0])
    groups = _grouped(parts_by_owner, lambda owner: tuple(sorted(n.partition(":")[2] for n in parts_by_owner[owner])))
    found = [
        (
            f"{fold_briefly(owners, _LIST)} {fold(filter(None, places))}".strip(),
            [p for o in owners for p in parts_by_owner[o]],
        )
        for places, owners in groups.items()
    ]
    return sorted(found, key=lambda each: -len(each[1]))


def _contention(sentences: Sequence[str]) -> Iterator[str]:
    """Yield the first sentences on pairs, with one example if there are many, and the number of the other pairs."""
    for each in sentences[:_MAX_PATHS]:
        if isinstance(each, Sentence) and len(each.parts) > _MAX_PAIRS:
            yield f"{len(each.parts):,} pairs {each.about}, such as {each.parts[0]}"
        else:
            yield each
    rest = sum(len(each.parts) for each in sentences[_MAX_PATHS:] if isinstance(each, Sentence))
    if rest:
        yield f"{rest:,} more pairs elsewhere: --json lists them"


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return the items by key, the largest group first."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return dict(sorted(groups.items(), key=lambda entry: -len(entry[1])))
