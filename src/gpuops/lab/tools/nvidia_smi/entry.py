"""One value that nvidia-smi reports, named once for its XML, its text and its CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

NOT_KNOWN = "N/A"


@dataclass(frozen=True)
class Entry:
    """A value, or a section of further entries, with its XML ``tag`` and its text ``label``.

    An empty tag omits it from the XML, an empty label from the text; a label of None omits the whole section from the
    text.
    """

    tag: str
    label: str
    value: str | tuple[Entry, ...]


def with_unit(value: object, unit: str = "") -> str:
    """Return ``value`` with its unit, or what nvidia-smi prints if a GPU does not report it."""
    return NOT_KNOWN if value is None else f"{value} {unit}".rstrip()


def yes(flag: bool) -> str:  # noqa: FBT001 - it is the value
    """Return Yes or No."""
    return "Yes" if flag else "No"


def enabled(flag: bool) -> str:  # noqa: FBT001 - it is the value
    """Return Enabled or Disabled."""
    return "Enabled" if flag else "Disabled"


def active(flag: bool) -> str:  # noqa: FBT001 - it is the value
    """Return Active or Not Active."""
    return "Active" if flag else "Not Active"


def section(tag: str, label: str, *entries: Entry | None) -> Entry:
    """Return a section; entries that are None are omitted (other drivers have them)."""
    return Entry(tag, label, tuple(e for e in entries if e is not None))


def alike(value: str, names: Iterable[tuple[str, str]]) -> Iterator[Entry]:
    """Return entries with the same value."""
    return (Entry(tag, label, value) for tag, label in names)
