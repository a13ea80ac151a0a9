"""Differences between a launch file as it is and as it is rendered, by what the file means; pure.

Comments, blank lines, white space, quotes and the order of keys mean nothing where people edit: in JSON, YAML, shell
scripts, Python and ssh_config. A change or a loss is a mistake. What was added beside what is rendered can be right, so
it is named as not checked.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuops.document import parse, parse_json
from gpuops.errors import DocumentError
from gpuops.render.rendering import Rendered
from gpuops.render.shell_lines import one_spelling, shell_lines

_SHORT, _BEFORE = 60, 20
"""The most characters of a text to show, and how many of them are before the first that differs."""
_ASSIGNMENT = re.compile(r"(?:export )?([A-Za-z_][A-Za-z0-9_]*)=")
_MISSING = object()


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
class _Line:
    """A line that means something: its number, and its words in one spelling."""

    number: int
    text: str


def differences(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Yield what differs in ``found`` from what gpuops renders."""
    if rendered.mode & 0o111 and not found.mode & 0o100:
        yield FileDifference(found.path, ": not executable; chmod +x")
    if rendered.text == found.text:
        return
    if "\r" in found.text and "\r" not in rendered.text:
        line = found.text[: found.text.index("\r")].count("\n") + 1
        yield FileDifference(found.path, f":{line}: ends with CR LF; gpuops ends lines with LF alone")
    compare = _comparison(found.path, rendered.text)
    yield from compare(rendered, found)


def _comparison(path: str, text: str) -> Callable[[Rendered, Rendered], Iterator[FileDifference]]:
    name = path.rpartition("/")[2]
    suffix = name.rpartition(".")[2] if "." in name else ""
    if suffix in ("json", "yaml", "yml"):
        return _data
    if suffix in ("sh", "sbatch", "pbs", "flux") or text.startswith(("#!/bin/sh", "#!/bin/bash")):
        return _shell
    return _BY_NAME.get(suffix if suffix == "py" else name, _plain)


def _data(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare JSON or YAML: the order of keys and the spelling of values mean nothing."""
    is_json = found.path.endswith(".json")
    try:
        wanted, there = (
            parse_json(file.text) if is_json else parse(file.text, "").plain() for file in (rendered, found)
        )
    except (ValueError, DocumentError) as error:
        yield FileDifference(found.path, f": {'not JSON: ' if is_json else ''}{error}")
        return
    yield from _values(found.path, "", wanted, there)


def _values(path: str, where: str, wanted: Any, there: Any) -> Iterator[FileDifference]:
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        for key in dict.fromkeys([*wanted, *there]):
            place = f"{where}.{key}" if where else str(key)
            if key not in wanted:
                yield FileDifference(path, f": {place} was added", is_checked=False)
            else:
                yield from _values(path, place, wanted[key], there.get(key, _MISSING))
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for number, pair in enumerate(zip(wanted, there, strict=True)):
            yield from _values(path, f"{where}[{number}]", *pair)
    elif wanted != there or isinstance(wanted, bool) is not isinstance(there, bool):
        is_, should_be = _apart(_spelled(there), _spelled(wanted))
        yield FileDifference(path, f": {where or 'it'} is {is_}, but gpuops renders {should_be}")


def _shell(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare shell scripts by their words; variables that are exported next to each other have no order."""
    yield from _lines(
        found.path, *(_with_sorted(_shell_lines(file.text), re.compile("export ")) for file in (rendered, found))
    )


def _shell_lines(text: str) -> Iterator[_Line]:
    for line in shell_lines(text):
        if words := one_spelling(line.text):
            yield _Line(line.number, words)
        yield from (_Line(number, text) for number, text in line.body)


def _python(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare Python by its syntax tree, as it is printed line by line."""
    texts = []
    for file in (rendered, found):
        try:
            texts.append(ast.unparse(ast.parse(file.text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
            yield FileDifference(file.path, f": not Python: {error}")
            return
    yield from _lines(found.path, *(map(_unnumbered, text.splitlines()) for text in texts))


def _ssh_config(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare ssh_config: keywords have no case, and no order inside a block."""

    def spelled(text: str) -> Iterator[_Line]:
        for line in _text_lines(text):
            keyword, _, value = line.text.replace("=", " ", 1).partition(" ")
            yield _Line(line.number, f"{keyword.lower()} {value.strip()}")

    yield from _lines(
        found.path, *(_with_sorted(spelled(file.text), re.compile(r"(?!host |match )")) for file in (rendered, found))
    )


def _plain(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare lists of hosts and settings: every line counts, in its order; a comment does not."""
    yield from _lines(found.path, _text_lines(rendered.text), _text_lines(found.text), may_add=False)


def _exact(rendered: Rendered, found: Rendered) -> Iterator[FileDifference]:
    """Compare files whose readers take comments for settings."""
    lines = ([_Line(n, line) for n, line in enumerate(file.text.splitlines(), 1)] for file in (rendered, found))
    yield from _lines(found.path, *lines, may_add=False)


def _text_lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), 1):
        if words := re.sub(r"(^|\s)#.*", "", line).split():
            yield _Line(number, " ".join(words))


def _unnumbered(text: str) -> _Line:
    return _Line(0, text)


def _with_sorted(lines: Iterable[_Line], movable: re.Pattern[str]) -> list[_Line]:
    """Sort each run of lines whose order means nothing."""
    runs = itertools.groupby(lines, lambda line: bool(movable.match(line.text)))
    return [line for is_run, run in runs for line in (sorted(run, key=lambda line: line.text) if is_run else run)]


def _lines(
    path: str, wanted: Iterable[_Line], there: Iterable[_Line], *, may_add: bool = True
) -> Iterator[FileDifference]:
    wanted, there = list(wanted), list(there)
    matcher = difflib.SequenceMatcher(
        None, [line.text for line in wanted], [line.text for line in there], autojunk=False
    )
    names = {match[1] for line in wanted if (match := _ASSIGNMENT.match(line.text))}
    for kind, start, end, from_, to in matcher.get_opcodes():
        if kind != "equal":
            yield from _block(path, wanted[start:end], there[from_:to], names if may_add else None)


def _block(
    path: str, wanted: Sequence[_Line], there: Sequence[_Line], names: set[str] | None
) -> Iterator[FileDifference]:
    """Yield what was lost, changed and added; nothing may be added without ``names``, which none may set again."""
    for want, line in itertools.zip_longest(wanted, there):
        if line is None:
            yield FileDifference(path, f": {_short(want.text)} is missing")
            continue
        where = f":{line.number}" if line.number else ""
        if want is not None:
            is_, should_be = _apart(line.text, want.text)
            yield FileDifference(path, f"{where}: found {is_}, but gpuops renders {should_be}")
            continue
        match = _ASSIGNMENT.match(line.text)
        overrides = names is None or (match is not None and match[1] in names)
        yield FileDifference(path, f"{where}: {_short(line.text)} was added", is_checked=overrides)


def _spelled(value: object) -> str:
    """Return a value as JSON, where 8 and "8" look different; what is missing is in no quotes."""
    return "(nothing)" if value is _MISSING else json.dumps(value, ensure_ascii=False, default=str)


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return the parts of two texts around the first difference."""
    same = next((at for at, (a, b) in enumerate(itertools.zip_longest(one, other)) if a != b), 0)
    start = max(0, same - _BEFORE) if max(len(one), len(other)) > _SHORT else 0
    return _short(one, start), _short(other, start)


def _short(text: str, start: int = 0) -> str:
    part = f"…{text[start:]}" if start else text
    return part if len(part) <= _SHORT else f"{part[: _SHORT - 1]}…"


_BY_NAME: Mapping[str, Callable[[Rendered, Rendered], Iterator[FileDifference]]] = {
    "py": _python,
    "ssh_config": _ssh_config,
    ".deepspeed_env": _exact,
    "varuna.env": _exact,
}
