"""Profiles as data, and what two of them do not have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuops.profile import Expected, Match, Profile
from gpuops.results.plain import plain


@dataclass(frozen=True)
class ValueDifference:
    """Key of which two profiles expect different values; None if one of them does not set it."""

    key: str
    one: Expected | None
    other: Expected | None


def profile_document(profile: Profile) -> dict[str, Any]:
    """Return a profile as plain data."""
    return {
        "name": profile.name,
        "about": profile.about,
        "match": _match_document(profile.match),
        "required": sorted(profile.required),
        "values": {key: _value_document(each) for key, each in profile.values.items()},
    }


def differences(one: Profile, other: Profile) -> list[ValueDifference]:
    """Return the keys with different values, in the order of the profiles; sources and grades may differ."""
    return list(_differences(one, other))


def diff_document(one: Profile, other: Profile) -> dict[str, Any]:
    """Return the differences as plain data."""
    return {
        "schema": "gpuops.profile-diff/1",
        "profiles": [one.name, other.name],
        "differences": {
            each.key: [each.one and _value_document(each.one), each.other and _value_document(each.other)]
            for each in differences(one, other)
        },
        "required": [sorted(one.required - other.required), sorted(other.required - one.required)],
    }


def _differences(one: Profile, other: Profile) -> Iterator[ValueDifference]:
    for key in dict.fromkeys([*one.values, *other.values]):
        a, b = one.values.get(key), other.values.get(key)
        if a is None or b is None or a.value != b.value:
            yield ValueDifference(key, a, b)


def _value_document(expected: Expected) -> dict[str, Any]:
    return {
        "value": plain(expected.value),
        "grade": expected.grade,
        "source": expected.source,
        "inherited_from": expected.inherited_from or None,
    }


def _match_document(match: Match | None) -> dict[str, Any] | None:
    return None if match is None else {"gpu_names": list(match.gpu_names), "fewest": match.fewest, "most": match.most}
