"""Profiles as text and as files: what each expects, what was learned, and what two of them do not share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuops.document import dump
from gpuops.profile import Expected, Match, Profile
from gpuops.report.page import Page, clean, fold
from gpuops.results.learned import LearnedProfile
from gpuops.results.profiles import differences

_INDENT = 11


def lines(profile: Profile, page: Page) -> Iterator[str]:
    """Yield what a profile is, the checks that it requires, and each value with its grade and source."""
    yield clean(profile.name)
    yield from page.labelled("", clean(profile.about), 2)
    yield from page.labelled("  matches", _matched(profile.match), 12)
    yield from page.labelled("  requires", ", ".join(sorted(profile.required)) or "nothing", 12)
    for key, expected in profile.values.items():
        yield f"  {key} = {format_value(expected.value)}"
        inherited = f"   inherited from {expected.inherited_from}" if expected.inherited_from else ""
        yield from page.labelled("", clean(f"{expected.source}   grade: {expected.grade}{inherited}"), 12)


def diff_lines(one: Profile, other: Profile, page: Page) -> Iterator[str]:
    """Yield a row for each key with different values, then the checks that only one of them requires."""
    rows = [(each.key, _brief(each.one), _brief(each.other)) for each in differences(one, other)]
    if rows:
        yield from page.columns([("", clean(one.name), clean(other.name)), *rows])
    else:
        yield f"{clean(one.name)} and {clean(other.name)} expect the same"
    for profile, checks in ((one, one.required - other.required), (other, other.required - one.required)):
        if checks:
            yield from page.labelled("", f"only {clean(profile.name)} requires {', '.join(sorted(checks))}", 0)


def learned_lines(result: LearnedProfile, page: Page) -> Iterator[str]:
    """Yield the learned profile, then the nodes that differ, and what no majority agrees on."""
    learned = result.learned
    profile = learned.profile
    yield from page.labelled("", clean(f"{profile.name}: {profile.about}"), 0)
    if learned.like:
        yield f"  like {clean(learned.like)}, and here:"
    own = {key: each for key, each in profile.values.items() if not each.inherited_from}
    rows = [(f"  {key}", format_value(each.value)) for key, each in own.items()]
    yield from page.columns(rows)
    nodes_by_text: dict[str, list[str]] = {}
    for each in learned.differences:
        text = f"{each.key} is {_found(each.found)}, not {format_value(each.expected)}"
        nodes_by_text.setdefault(text, []).append(each.node)
    for text, nodes in nodes_by_text.items():
        yield from page.labelled("differs", clean(f"{fold(nodes)}: {text}"), _INDENT)
    for key in learned.undecided:
        yield from page.labelled("left out", f"{key}: no value is that of more than half", _INDENT)
    for name, excluded in result.excluded.items():
        yield from page.labelled("no answer", clean(f"{name}: {excluded.why}"), _INDENT)


def to_yaml(profile: Profile, like: str = "") -> str:
    """Return the file of a profile, for checks/profiles/; if it is ``like`` another, without what it inherits."""
    document: dict[str, Any] = {"name": profile.name, "about": profile.about, **({"like": like} if like else {})}
    if profile.match:
        count = {} if profile.match.gpu_count is None else {"gpu_count": profile.match.gpu_count}
        document["match"] = {"gpu_name": list(profile.match.gpu_names), **count}
    own = {key: each for key, each in profile.values.items() if not (like and each.inherited_from)}
    return dump({**document, "required": sorted(profile.required), "values": _nested(own)})


def format_value(value: object) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {format_value(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_value, value))
    return f"{value:g}" if isinstance(value, float) else clean(value)


def _brief(expected: Expected | None) -> str:
    """Return a value in a column: of a curve, its first and its last point."""
    value = None if expected is None else expected.value
    if not isinstance(value, Mapping) or len(value) < 3:
        return format_value(value)
    first, *_, last = value.items()
    return f"{format_value(dict([first]))}, ..., {format_value(dict([last]))}"


def _matched(match: Match | None) -> str:
    if match is None:
        return "nothing: a host has it only if the inventory names it"
    names = clean(" or ".join(match.gpu_names))
    if match.gpu_count:
        return f"{match.gpu_count} \u00d7 {names}"
    return f"{names}, {'any number' if match.most is None else f'{match.fewest} to {match.most}'}"


def _found(found: Mapping[Any, int]) -> str:
    """Return the values of a node; of several parts, with the number of parts that have each."""
    total = sum(found.values())
    if total == 1 or len(found) == 1:
        return ", ".join(map(format_value, found))
    return ", ".join(f"{format_value(value)} ({count} of {total})" for value, count in found.items())


def _nested(values: Mapping[str, Expected]) -> dict[str, Any]:
    """Return ``gpu.count`` as ``{gpu: {count: …}}``."""
    tree: dict[str, Any] = {}
    for key, each in values.items():
        *folders, leaf = key.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = {"value": each.value, "source": each.source, "grade": each.grade}
    return tree
