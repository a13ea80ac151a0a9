"""Lines of text for a page: cleaned, folded and wrapped; colour only repeats what a word states."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from gpuops.errors import format_count
from gpuops.secret import redact

_NUMBER = r"(?<![\[,\d-])\d{1,3}(?:,\d{3})+(?![\d,\]-])"
"""A number with thousands, which is not the inside of a folded set."""
_PIECE = re.compile(rf"(?:{_NUMBER}|[^\s,])*[\s,]*")
_COMMAND = re.compile(r"(?:^|(?<=: )|(?<=then ))gpuops [a-z].*$")
_FOLDABLE = re.compile(r"[A-Za-z0-9_.:-]+")
_NARROWEST = 16
_COLOURS = {
    **dict.fromkeys(("pass",), "32"),
    **dict.fromkeys(("warn",), "33"),
    **dict.fromkeys(("fail", "reset", "reboot", "isolate", "rma"), "31"),
    **dict.fromkeys(("unknown",), "35"),
    **dict.fromkeys(("skipped", "info"), "2"),
}


@dataclass(frozen=True)
class Page:
    """Maximum width of a line in characters, and whether words may be coloured."""

    width: int = 80
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str] = os.environ) -> Page:
        """Return the page of ``stream``: a terminal has a width, and colours unless NO_COLOR is set (no-color.org)."""
        if not stream.isatty():
            return cls()
        plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
        return cls(max(40, shutil.get_terminal_size().columns), not plain)

    def paint(self, word: str) -> str:
        """Return a status or severity in its colour, if the page has colours."""
        code = _COLOURS.get(word.strip().lower())
        return f"\x1b[{code}m{word}\x1b[0m" if self.colour and code else word

    def labelled(self, label: str, text: str, indent: int) -> Iterator[str]:
        """Yield ``text`` wrapped at ``indent``, right of ``label``, or below it if the label is too long."""
        lines = wrap(text, self.width - indent)
        if len(label.rstrip()) < max(indent, 1):
            yield f"{label:<{indent}}{lines.pop(0)}".rstrip()
        else:
            yield label
        yield from (f"{'':<{indent}}{line}" for line in lines)

    def columns(self, rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
        """Yield rows of a table; the last column wraps, below the others if they leave it less than 16 characters."""
        widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
        indent = sum(widths) + 3 * len(widths)
        for *cells, last in rows:
            label = "".join(f"{cell:<{width}}   " for cell, width in zip(cells, widths, strict=True))
            if self.width - indent >= _NARROWEST or not last:
                yield from self.labelled(label, last, indent)
            else:
                yield from (label.rstrip(), *self.labelled("", last, 2))

    def edges(self, left: str, right: str) -> Iterator[str]:
        """Yield ``left`` wrapped, with ``right`` at the right edge of its first line, or below it if it is too long."""
        if len(right) > self.width // 2:
            yield from (*wrap(left, self.width), right)
            return
        first, *more = wrap(left, self.width - len(right) - 2)
        yield f"{first:<{self.width - len(right)}}{self.paint(right)}"
        yield from more


def clean(text: object) -> str:
    """Return ``text`` safe to print: secrets masked; control, invisible and invalid characters escaped."""
    shown = redact(str(text))
    if shown.isprintable():
        return shown
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)


def fold(names: Iterable[str]) -> str:
    """Return names as one folded set, ``gpu[001-016,018]``; a name that does not fit in a set follows it."""
    names = list(names)
    foldable = [name for name in names if _FOLDABLE.fullmatch(name)]
    strange = dict.fromkeys(clean(name) for name in names if not _FOLDABLE.fullmatch(name))
    folded = str(NodeSet(",".join(foldable), resolver=RESOLVER_NOGROUP))
    return ",".join(filter(None, [folded, *strange]))


def fold_briefly(names: Iterable[str], width: int) -> str:
    """Return `fold`, cut after ``width`` characters with the number of all names; --json has them."""
    names = list(names)
    folded = fold(names)
    if len(folded) <= width:
        return folded
    kept = folded[:width].rpartition(",")[0] or folded[:width]
    bracket = "]" if kept.count("[") > kept.count("]") else ""
    return f"{kept},...{bracket} ({len(names):,} in all)"


def format_node_count(count: int) -> str:
    """Return ``1 node``, ``3 nodes``."""
    return format_count(count, "node")


def wrap(text: str, width: int) -> list[str]:
    """Split ``text`` into lines of at most ``width``, after spaces or commas: node sets may be long.

    A newline begins a line. A proposed command at the end of the text stays on one line, however long, so that it can
    be copied.
    """
    if "\n" in text:
        return [line for part in text.split("\n") for line in wrap(part, width)]
    width = max(width, 8)  # narrower lines are not readable
    lines, line = [], ""
    command = _COMMAND.search(text)
    pieces = _PIECE.findall(text[: command.start()] if command else text)
    for piece in pieces:
        if line and len(line) + len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
        while len(line.rstrip()) > width:
            lines.append(line[:width])
            line = line[width:]
    if command is None:
        return [*lines, line.rstrip()]
    fits = len(line) + len(command[0]) <= width
    return [*lines, line + command[0]] if fits else [*lines, *filter(None, [line.rstrip()]), command[0]]
