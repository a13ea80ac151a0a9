"""Text report of probe values with units, and the same values as JSON data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuops.facts import Facts
from gpuops.results.answers import Answers
from gpuops.results.plain import plain

SCHEMA = "gpuops.values/1"
_UNITS = {
    "mib": "MiB",
    "kib": "KiB",
    "gib": "GiB",
    "celsius": "°C",
    "watts": "W",
    "percent": "%",
    "seconds": "s",
    "mbps": "Mbit/s",
    "gbps": "Gbit/s",
    "gb_per_s": "GB/s",
    "gt_per_s": "GT/s",
}
"""The unit for each suffix of a field name."""


def whole(facts: Facts) -> dict[str, Any]:
    """Return all values of a node as JSON data; an unknown value is its reason."""
    return {name: plain(value) for name, value in facts.values.items()}


def facts_to_json(answers: Answers[Facts]) -> str:
    """Return the values of all nodes as one JSON document."""
    hosts = {node: whole(facts) for node, facts in answers.values.items()}
    return json.dumps({"schema": SCHEMA, "hosts": hosts, "excluded": plain(answers.excluded)}, indent=1)


def facts_lines(facts_by_node: Mapping[str, Facts]) -> Iterator[str]:
    """Yield the facts of nodes as a tree."""
    for node, facts in facts_by_node.items():
        yield from lines({node: whole(facts)})


def lines(value: Any) -> Iterator[str]:
    """Yield lines ``name: value unit``, nested by two spaces; each item of a list starts with a dash."""
    if not _nests(value):
        yield _words(value)
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from _entry(name, entry)
    else:
        for item in value:
            yield from (f"{'  ' if n else '- '}{line}" for n, line in enumerate(lines(item)))


def _nests(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, (dict, list)) for item in value)
    return isinstance(value, dict) and bool(value)


def _entry(name: str, value: Any) -> Iterator[str]:
    if _nests(value):
        yield from (f"{_printable(name)}:", *(f"  {line}" for line in lines(value)))
        return
    suffix = max((suffix for suffix in _UNITS if f"_{name}".endswith(f"_{suffix}")), key=len, default="")
    unit = f" {_UNITS[suffix]}" if suffix and isinstance(value, (int, float)) else ""
    yield f"{_printable(name.removesuffix(f'_{suffix}') if suffix else name)}: {_words(value)}{unit}".rstrip()


def _words(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return ", ".join(map(_words, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "not reported", True: "yes", False: "no"}[value]
    return _printable(str(value))


def _printable(text: str) -> str:
    """Return the text without control characters: it comes from a node and goes to a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
