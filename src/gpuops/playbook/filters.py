"""The filters of ``{{ name | filter }}``: pure functions of plain values, which fail rather than guess."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sized
from typing import Any

_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"expected text, found {_kind(value)}")
    return str(value)


def _list(value: object) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"expected a list, found {_kind(value)}")
    return list(value)


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a map"
    return "a list" if isinstance(value, (list, tuple)) else repr(value)


def _integer(value: object) -> int:
    return int(value if isinstance(value, (bool, int, float)) else _text(value).strip())


def _boolean(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in _BOOLEANS:
        raise ValueError(f"expected true or false, found {_kind(value)}")
    return _BOOLEANS[word]


def _length(value: object) -> int:
    if not isinstance(value, Sized):
        raise TypeError(f"expected text, a list or a map, found {_kind(value)}")
    return len(value)


def _end(place: int) -> Callable[[object], Any]:
    def end(value: object) -> Any:
        items = value if isinstance(value, str) else _list(value)
        if not items:
            raise ValueError("it is empty")
        return items[place]

    return end


def _unique(value: object) -> list[Any]:
    items: list[Any] = []
    for item in _list(value):
        if item not in items:
            items.append(item)
    return items


def _pairs(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a map, found {_kind(value)}")
    return [{"key": key, "value": entry} for key, entry in value.items()]


def to_json(value: object) -> str:
    """Return the value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False)


def regex_replace(value: object, pattern: str, replacement: str = "") -> str:
    r"""Return the text with all matches of the regular expression replaced; ``\1`` is its first group."""
    return re.sub(pattern, replacement, _text(value))


FILTERS: Mapping[str, Callable[..., Any]] = {
    "bool": _boolean,
    "dict2items": _pairs,
    "first": _end(0),
    "int": _integer,
    "join": lambda value, between="": str(between).join(map(_text, _list(value))),
    "last": _end(-1),
    "length": _length,
    "lower": lambda value: _text(value).lower(),
    "regex_replace": regex_replace,
    "sort": lambda value: sorted(_list(value)),
    "split": lambda value, between=None: _text(value).split(between),
    "to_json": to_json,
    "trim": lambda value: _text(value).strip(),
    "unique": _unique,
    "upper": lambda value: _text(value).upper(),
}
"""Every filter by name, but ``default``, which takes what is not defined."""
