"""Differences between the lines of two files that mean something, each as a sentence; pure."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuops.render.options import is_option

_SHORT, _BEFORE = 60, 20
"""The most characters of a text to show, and how many of them are before the first that differs."""
_ASSIGNMENT = re.compile(r"(?:export )?([A-Za-z_][A-Za-z0-9_]*)=")


@dataclass(frozen=True)
class FileDifference:
    """What is different in a file, as a sentence; one that ``is_checked`` is a mistake."""

    path: str
    what: str
    is_checked: bool = True

    def __str__(self) -> str:
        """Return the file and the sentence."""
        return f"{self.path}{self.what}"


@dataclass(frozen=True)
class Effect:
    """What a command does to the others: it ``sets``, ``unsets`` and ``reads`` variables, or ``ends`` the script.

    ``decides`` are options that decide where ranks run and how many there are.
    """

    sets: frozenset[str] = frozenset()
    unsets: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    ends: bool = False
    decides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A line that means something: its number (0: none), and its ``text`` in one spelling.

    ``loose`` are the parts of a command as its program may read them (none: the text); see `gpuops.render.options`.
    ``flaw`` is what is wrong with it though its text is right. A line of a here-document has that command's text as
    ``document``.
    """

    number: int
    text: str
    loose: tuple[str, ...] = ()
    is_known: bool = True
    effect: Effect = Effect()
    flaw: str = ""
    document: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What has to be equal."""
        return self.loose or (self.text,)

    @property
    def where(self) -> str:
        """The number behind a colon, if there is one."""
        return f":{self.number}" if self.number else ""

    @property
    def names(self) -> frozenset[str]:
        """The variables that it sets."""
        match = _ASSIGNMENT.match(self.text)
        return self.effect.sets | ({match[1]} if match else set())


def line_differences(
    path: str, wanted: Iterable[Line], there: Iterable[Line], *, may_add: bool = True
) -> Iterator[FileDifference]:
    """Yield what differs.

    With ``may_add``, an added line is a mistake only if it sets a variable again, unsets one, ends the script, or is
    in a here-document that is wanted.
    """
    wanted, there = list(wanted), list(there)
    matcher = difflib.SequenceMatcher(None, [line.key for line in wanted], [line.key for line in there], autojunk=False)
    names = frozenset[str]().union(*(line.names for line in wanted))
    used = names.union(*(line.effect.reads for line in wanted))
    documents = {line.document for line in wanted if line.document}

    def breaks(line: Line) -> bool:
        """Return True if an added line keeps the others from what they do."""
        is_data = line.document in documents
        return not may_add or line.effect.ends or is_data or bool(names & line.names or used & line.effect.unsets)

    for kind, start, end, from_, to in matcher.get_opcodes():
        if kind == "equal":
            yield from _respelled(path, wanted[start:end], there[from_:to])
        else:
            yield from _block(path, wanted[start:end], there[from_:to], breaks)


def _respelled(path: str, wanted: Sequence[Line], there: Sequence[Line]) -> Iterator[FileDifference]:
    """Yield the commands whose program may read its arguments in another order or spelling alike, and the flaws."""
    for want, line in zip(wanted, there, strict=True):
        if line.flaw:
            yield FileDifference(path, f"{line.where}: {line.flaw}")
        if want.text != line.text and not want.is_known:
            is_, should_be = apart(line.text, want.text)
            what = f"the program's own arguments are {is_}, but gpuops renders {should_be}"
            yield FileDifference(path, f"{line.where}: {what}", is_checked=False)


def _block(
    path: str, wanted: Sequence[Line], there: Sequence[Line], breaks: Callable[[Line], bool]
) -> Iterator[FileDifference]:
    """Yield what was lost, changed and added; what was added is a mistake if it ``breaks`` the rest."""
    for want, line in itertools.zip_longest(wanted, there):
        if line is None:
            yield FileDifference(path, f": {short(want.text)} is missing")
        elif want is None:
            yield FileDifference(path, f"{line.where}: {short(line.text)} was added", is_checked=breaks(line))
        elif options := _added_options(want.loose, line.loose):
            decides = set(line.effect.decides) > set(want.effect.decides)
            yield FileDifference(path, f"{line.where}: {short(options)} was added", is_checked=decides)
        else:
            is_, should_be = apart(line.text, want.text)
            yield FileDifference(path, f"{line.where}: found {is_}, but gpuops renders {should_be}")


def _added_options(wanted: Sequence[str], there: Sequence[str]) -> str:
    """Return the options that ``there`` has beside all that is ``wanted``; empty if it differs in anything else."""
    rest, added = list(wanted), list[str]()
    for part in there:
        if rest and part == rest[0]:
            rest.pop(0)
        else:
            added.append(part)
    names = {re.split("[= ]", part)[0] for part in wanted}
    is_new = all(is_option(part) and re.split("[= ]", part)[0] not in names for part in added)
    return " ".join(added) if is_new and not rest else ""


def with_sorted(lines: Iterable[Line], movable: re.Pattern[str]) -> list[Line]:
    """Sort each run of lines whose order means nothing."""
    runs = itertools.groupby(lines, lambda line: bool(movable.match(line.text)))
    return [line for is_run, run in runs for line in (sorted(run, key=lambda line: line.text) if is_run else run)]


def apart(one: str, other: str) -> tuple[str, str]:
    """Return the parts of two texts around the first difference."""
    same = next((at for at, (a, b) in enumerate(itertools.zip_longest(one, other)) if a != b), 0)
    start = max(0, same - _BEFORE) if max(len(one), len(other)) > _SHORT else 0
    return short(one, start), short(other, start)


def short(text: str, start: int = 0) -> str:
    """Return a text, or a part of one that is long, from ``start``."""
    part = f"…{text[start:]}" if start else text
    return part if len(part) <= _SHORT else f"{part[: _SHORT - 1]}…"
