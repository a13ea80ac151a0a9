"""Entry: one thing that nvidia-smi tells, named once for its XML, its text and its CSV."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

NOT_KNOWN = "N/A"


@dataclass(frozen=True)
class Entry:
    """A value, or a section of further entries, under its XML ``tag`` and its text ``label``.

    An empty tag keeps it out of the XML, an empty label out of the text; a label of None there passes the section over
    with all that is in it.
    """

    tag: str
    label: str
    value: str | tuple[Entry, ...]


def with_unit(value: object, unit: str = "") -> str:
    """``value`` with its unit, or what nvidia-smi prints if a card does not report it."""
    return NOT_KNOWN if value is None else f"{value} {unit}".rstrip()


def yes(flag: bool) -> str:  # noqa: FBT001 - it is the value
    """Yes or No."""
    return "Yes" if flag else "No"


def enabled(flag: bool) -> str:  # noqa: FBT001 - it is the value
    """Enabled or Disabled."""
    return "Enabled" if flag else "Disabled"


def active(flag: bool) -> str:  # noqa: FBT001 - it is the value
    """Active or Not Active."""
    return "Active" if flag else "Not Active"


def section(tag: str, label: str, *entries: Entry | None) -> Entry:
    """A section; None among its entries is left out (other drivers have it)."""
    return Entry(tag, label, tuple(e for e in entries if e is not None))


def alike(value: str, names: Iterable[tuple[str, str]]) -> Iterator[Entry]:
    """Entries that all tell the same."""
    return (Entry(tag, label, value) for tag, label in names)
