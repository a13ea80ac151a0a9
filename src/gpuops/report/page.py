"""Lines of text for a page: cleaned, folded and wrapped; colour only repeats what a word states."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from gpuops.errors import format_count
from gpuops.inventory.names import node_set
from gpuops.secret import redact

_NUMBER = r"(?<![\[,\d-])\d{1,3}(?:,\d{3})+(?![\d,\]-])"
"""A number with thousands, which is not the inside of a folded set."""
_PIECE = re.compile(rf"(?:{_NUMBER}|[^\s,])*[\s,]*")
_COMMAND = re.compile(r"(?:^|(?<=: )|(?<=then ))gpuops (?:--)?[a-z].*$")
_FOLDABLE = re.compile(r"[A-Za-z0-9_.:-]+")
_NARROWEST = 16
"""Characters of the last column below which a table is made narrower; our own choice, as are the gaps."""
_LEAST = 10
"""Characters to which a column of a table shrinks at most."""
_GAP, _SMALL_GAP = 3, 2
_SIZE = os.terminal_size((80, 24))
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
        return cls(max(40, columns_of(stream)), not plain)

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
        """Yield rows of a table; the last column wraps.

        On a narrower page the gaps shrink and the widest columns wrap. If the columns still do not fit, the cells of
        each row follow each other, on several lines if need be.
        """
        if not rows:
            return
        gap, widths = _GAP, _widths(rows, self.width - _GAP * (len(rows[0]) - 1), wrapped=False)
        if not widths:
            gap, widths = _SMALL_GAP, _widths(rows, self.width - _SMALL_GAP * (len(rows[0]) - 1), wrapped=True)
        for row in rows:
            yield from self._aligned(row, widths, gap) if widths else self._flowing(row)

    def _aligned(self, row: tuple[str, ...], widths: Sequence[int], gap: int) -> Iterator[str]:
        """Yield one row, its last cell below it if that has a word, such as a path, that does not fit beside it."""
        is_below = _longest_piece(row[-1]) > widths[-1] and not _COMMAND.search(row[-1])
        cells = (*row[:-1], "") if is_below else row
        wrapped = [wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
        for parts in itertools.zip_longest(*wrapped, fillvalue=""):
            yield (" " * gap).join(f"{part:<{width}}" for part, width in zip(parts, widths, strict=True)).rstrip()
        yield from self.labelled("", row[-1], _SMALL_GAP) if is_below else ()

    def _flowing(self, row: tuple[str, ...]) -> Iterator[str]:
        line = ""
        for part in (part for cell in row if cell for part in wrap(cell, self.width - _SMALL_GAP)):
            if line and len(line) + _GAP + len(part) > self.width:
                yield line
                line = " " * _SMALL_GAP + part
            else:
                line += " " * _GAP * bool(line) + part
        yield line

    def edges(self, left: str, right: str) -> Iterator[str]:
        """Yield ``left`` wrapped, with ``right`` at the right edge of its first line, or below it if it is too long."""
        if len(right) > self.width // 2:
            yield from (*wrap(left, self.width), right)
            return
        first, *more = wrap(left, self.width - len(right) - 2)
        yield f"{first:<{self.width - len(right)}}{self.paint(right)}"
        yield from more


def columns_of(stream: TextIO) -> int:
    """Return the width of a terminal in characters: COLUMNS, else that of stdout or else of ``stream``, else 80."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # it has no file, or it is not a terminal
        size = _SIZE
    return shutil.get_terminal_size(size if size.columns else _SIZE).columns


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
    folded = node_set(foldable)
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

    A word that is longer breaks after a slash if it has one.

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
            end = line.rfind("/", 1, width) + 1 or width
            lines.append(line[:end])
            line = line[end:]
    if command is None:
        return [*lines, line.rstrip()]
    fits = len(line) + len(command[0]) <= width
    return [*lines, line + command[0]] if fits else [*lines, *filter(None, [line.rstrip()]), command[0]]


def _longest_piece(text: str) -> int:
    return max(len(piece.rstrip()) for piece in _PIECE.findall(text))


def _widths(rows: Sequence[tuple[str, ...]], room: int, *, wrapped: bool) -> list[int]:
    """Return the width of each column, together ``room``, or nothing if they do not fit.

    All but the last have the width of their longest cells, if ``wrapped`` at least that of their longest words.
    The last wraps anyway, and a longer word of it stands below its row.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    widths[-1] = min(widths[-1], _NARROWEST)
    words = [max(map(_longest_piece, column)) for column in columns] if wrapped else widths
    least = [min(width, max(word, _LEAST)) for width, word in zip(widths, words, strict=True)]
    while sum(widths) > room:
        wide = [at for at, width in enumerate(widths) if width > least[at]]
        if not wide:
            return []
        widths[max(wide, key=widths.__getitem__)] -= 1
    widths[-1] += room - sum(widths)
    return widths
