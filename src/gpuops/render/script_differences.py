"""Differences between a script as it is and as it is rendered: first line, options of the job, and commands; pure."""

from __future__ import annotations

import itertools
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpuops.render.directives import Directive, misplaced_directives, read_directives
from gpuops.render.line_differences import FileDifference, Line, apart, line_differences, short
from gpuops.render.shell_lines import interpreter
from gpuops.render.shell_statements import lines_of, lines_of_words


def script_differences(path: str, wanted: str, there: str) -> Iterator[FileDifference]:
    """Yield what differs between the texts of two scripts."""
    yield from _first_lines(path, wanted.partition("\n")[0], there.partition("\n")[0])
    directives = [*read_directives(wanted)]
    if any(each.system == "#flux:" for each in directives):  # other readers take its lines for comments
        yield from (FileDifference(path, f":{number}: {why}") for number, why in misplaced_directives(there))
    yield from _directives(path, directives, read_directives(there))
    yield from line_differences(path, *lines_of(wanted, there))


def command_differences(path: str, wanted: str, there: str) -> Iterator[FileDifference]:
    """Yield what differs between the commands of two scripts inside of another file."""
    lines = lines_of(wanted, there)
    yield from line_differences(path, *([replace(line, number=0) for line in own] for own in lines))


def word_differences(path: str, wanted: Sequence[str], there: Sequence[str]) -> Iterator[FileDifference]:
    """Yield what differs between two commands, each a list of words."""
    yield from line_differences(path, *(lines_of_words([*map(shlex.quote, words)]) for words in (wanted, there)))


def _first_lines(path: str, wanted: str, there: str) -> Iterator[FileDifference]:
    """Compare the #! lines, which count only at the very start of a file."""
    want, own = interpreter(wanted), interpreter(there)
    if want and not own:
        found = short(there.strip()) or "an empty line"
        yield FileDifference(path, f":1: the first line must be {wanted}; found {found}")
    elif want != own:
        yield from line_differences(path, [Line(1, f"#! {want}")] if want else [], [Line(1, f"#! {own}")])


def _directives(path: str, wanted: Iterable[Directive], there: Iterable[Directive]) -> Iterator[FileDifference]:
    """Yield what differs in the options of a job; their order means nothing, unless one repeats."""
    by_name = defaultdict[tuple[str, ...], tuple[list[Directive], list[Directive]]](lambda: ([], []))
    for side, directives in enumerate((wanted, there)):
        for each in directives:
            by_name[each.system, each.name, each.key][side].append(each)
    for own, found in by_name.values():
        for want, each in itertools.zip_longest(own, found):
            if each is None:
                yield FileDifference(path, f": {short(str(want))} is missing")
            elif want is None:
                is_mistake = bool(own) or each.is_decisive
                yield FileDifference(path, f":{each.number}: {short(str(each))} was added", is_checked=is_mistake)
            elif want.value != each.value:
                is_, should_be = apart(str(each), str(want))
                yield FileDifference(path, f":{each.number}: found {is_}, but gpuops renders {should_be}")
