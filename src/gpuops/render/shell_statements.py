"""The statements of a shell script, each by itself, in one spelling, with what it does to the others; pure."""

from __future__ import annotations

import heapq
import itertools
import re
import shlex
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuops.render.line_differences import Effect, Line
from gpuops.render.logs import without_log
from gpuops.render.options import read_words
from gpuops.render.shell_lines import shell_lines
from gpuops.render.shell_words import spelled_words

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\+?=")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USED = re.compile(r"\$\{?[!#]?([A-Za-z_][A-Za-z0-9_]*)")
_OPERATOR = re.compile(r"[();<>|&]+")
_REDIRECTION = re.compile(r"[<>]{1,3}")
_QUIET = frozenset("cat echo mkdir printf trap".split())
"""Commands that set no variable of the shell."""
_OF_COMMANDS = frozenset("PATH LD_LIBRARY_PATH LD_PRELOAD".split())
"""Variables that every command uses without naming them."""
_OPENING = frozenset("if case for while until select {".split())
_CLOSING = frozenset("fi esac done }".split())
_BEFORE_COMMANDS = frozenset("then do else elif ! { (".split())
_SHELL_OPTIONS = {"errexit": "e", "nounset": "u", "xtrace": "x", "noglob": "f", "allexport": "a", "verbose": "v"}
_OUTPUT = "!"
"""What commands write, as the name of a variable: they keep their order."""
_HIDDEN = "| tee hides the exit code of the command; write set -o pipefail above it"


@dataclass(frozen=True)
class Statement:
    """A statement with its here-documents; one that is ``fixed`` keeps its place among all others.

    ``unlogged`` is the same one without the log files of its output.
    """

    lines: tuple[Line, ...]
    words: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    fixed: bool = True
    unlogged: Statement | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What is equal in two versions of it: what it assigns, or else all of it."""
        names = self.writes - {_OUTPUT}
        return ("=", *sorted(names)) if names and not self.fixed else tuple(line.key for line in self.lines)

    def conflicts(self, other: Statement) -> bool:
        """Return True if the order of both matters."""
        if self.fixed or other.fixed:
            return True
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


def lines_of(wanted: str, there: str) -> tuple[list[Line], list[Line]]:
    """Return the commands of two scripts line by line, those that mean the same at the same place."""
    own = _statements(wanted)
    found = _without_logs(_statements(there), {each.key for each in own})
    flat = ([line for each in some for line in each.lines] for some in (own, _in_order_of(own, found)))
    return next(flat), next(flat)


def _without_logs(statements: Iterable[Statement], known: set[tuple[object, ...]]) -> list[Statement]:
    """Return the statements, those that are ``known`` only without their log files without them."""
    return [
        each.unlogged if each.unlogged and each.key not in known and each.unlogged.key in known else each
        for each in statements
    ]


def lines_of_words(words: Sequence[str]) -> list[Line]:
    """Return a command of quoted words, and the script in them, line by line."""
    return [line for each in _with_scripts(0, list(words), ()) for line in each.lines]


def _statements(text: str) -> list[Statement]:
    """Return the statements of a script, and those of the scripts in its quotes, such as that of ``bash -c``."""
    found, has_pipefail = list[Statement](), False
    for line in shell_lines(text, with_quotes=True):
        body = [Line(number, text) for number, text in line.body]
        try:
            words = spelled_words(line.text)
        except (ValueError, RecursionError):
            found.append(Statement((Line(line.number, " ".join(line.text.split())), *body)))
            continue
        body = [replace(each, document=" ".join(words)) for each in body]
        *before, last = _split(words)
        for each in (*before, last):
            has_pipefail = _pipefail(each, before=has_pipefail)
            found += _with_scripts(line.number, each, body if each is last else (), has_pipefail=has_pipefail)
    return _exported(_ending(found))


def _split(words: Sequence[str]) -> list[list[str]]:
    """Split at ``;``, unless the line has a block; the last part may be empty."""
    if any(depth > 0 for depth in _depths(words)):
        return [[*words]]
    parts = [list[str]()]
    for word in words:
        if word == ";":
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts[:-1] if part] + [parts[-1]] if parts[-1] or len(parts) == 1 else parts[:-1]


def _pipefail(words: Sequence[str], *, before: bool) -> bool:
    """Return whether a pipe fails with any of its commands behind a command of ``words``."""
    set_ = [each for each in _shell_options(words[1:]) if each[1:] == "o pipefail"] if words[:1] == ["set"] else []
    return set_[-1][0] == "-" if set_ else before


def _with_scripts(
    number: int, words: list[str], body: Sequence[Line], *, has_pipefail: bool = False
) -> Iterator[Statement]:
    """Yield the statements of a command, with those of a script of several lines in its quotes."""
    start = 0
    for at, word in enumerate(words):
        if words[at - 1 : at] == ["-c"] and word.startswith("'") and "\n" in word:
            yield _fixed(number, words[start:at], ())
            for each in _statements("".join(shlex.split(word))):
                yield _at(number, each)
            start = at + 1
    if words[start:]:
        simple = [] if start or body else list(_simple(number, words))
        yield from simple or [_command(number, words[start:], tuple(body), has_pipefail=has_pipefail)]
    elif body:
        yield Statement(tuple(body))


def _at(number: int, statement: Statement) -> Statement:
    """Return a statement with the number of another line."""
    lines = tuple(replace(line, number=number) for line in statement.lines)
    return replace(statement, lines=lines, unlogged=statement.unlogged and _at(number, statement.unlogged))


def _simple(number: int, words: Sequence[str]) -> Iterator[Statement]:
    """Yield what ``set`` and assignments do, one option or variable each; nothing for other commands."""
    if words[0] == "set" and (options := _shell_options(words[1:])):
        for option in options:
            yield _statement(number, ["set", option], reads={_OUTPUT}, writes={option})
    elif parts := _assignments(words):
        prefix = ["export"] if words[0] == "export" else []
        for part in parts:
            match = _ASSIGNMENT.match(part)
            yield _statement(number, [*prefix, part], reads=_used(part), writes={match[1] if match else part})


def _shell_options(words: Sequence[str]) -> list[str]:
    """Return the options of ``set`` with one letter each, or the name of ``-o``; empty if it does anything else."""
    options, rest = list[str](), deque(words)
    while rest:
        word = rest.popleft()
        if not re.fullmatch(r"[-+][a-zA-Z]+", word):
            return []
        for letter in word[1:]:
            name = rest.popleft() if letter == "o" and rest else letter
            options.append(f"{word[0]}{_SHELL_OPTIONS.get(name, name if letter != 'o' else f'o {name}')}")
    return options


def _assignments(words: Sequence[str]) -> list[str]:
    """Return the variables that a command sets or exports, if it does nothing else and none uses one before it."""
    parts = list(words[1:] if words[0] == "export" else words)
    names = [_ASSIGNMENT.match(part) or (_NAME.fullmatch(part) if words[0] == "export" else None) for part in parts]
    if not all(names) or any(map(_OPERATOR.fullmatch, parts)):
        return []
    set_before = set[str]()
    for part in parts if words[0] == "export" else []:
        if _used(part) & set_before:
            return []
        set_before.add(re.split(r"\+?=", part)[0])
    return parts


def _statement(number: int, words: Sequence[str], *, reads: Iterable[str], writes: Iterable[str]) -> Statement:
    """Return a statement that may change places with those that it does not touch."""
    text = " ".join(words)
    runs = "$(" in text or "`" in text
    line = Line(number, text, effect=Effect(frozenset(writes), frozenset(), frozenset(reads)))
    return Statement(
        (line,),
        tuple(words),
        frozenset((*reads, *(_OF_COMMANDS if runs else ()))),
        frozenset((*writes, *((_OUTPUT,) if runs else ()))),
        fixed=False,
    )


def _command(number: int, words: list[str], body: tuple[Line, ...], *, has_pipefail: bool) -> Statement:
    """Return a command, which may change places with assignments if it is known to set nothing."""
    whole = _fixed(number, words, body)
    redirected = all(map(_REDIRECTION.fullmatch, filter(_OPERATOR.fullmatch, words)))
    if words[0] not in _QUIET or not redirected:
        return replace(whole, unlogged=_unlogged(number, words, body, has_pipefail=has_pipefail))
    return replace(whole, reads=whole.lines[0].effect.reads | _OF_COMMANDS, writes=frozenset({_OUTPUT}), fixed=False)


def _unlogged(number: int, words: list[str], body: tuple[Line, ...], *, has_pipefail: bool) -> Statement | None:
    """Return a command without its log files; one whose exit code tee hides has that flaw."""
    kept, has_tee = without_log(words)
    if not kept or kept == words:
        return None
    plain = _fixed(number, kept, body)
    line, *rest = plain.lines
    flaw = _HIDDEN if has_tee and not has_pipefail else ""
    return replace(plain, lines=(replace(line, flaw=flaw), *rest))


def _fixed(number: int, words: list[str], body: tuple[Line, ...]) -> Statement:
    command = read_words(words)
    text = " ".join(command.parts)
    reads = _used(" ".join([text, *(line.text for line in body)]))
    unset = frozenset(words[1:] if words[0] == "unset" or words[:2] == ["export", "-n"] else ())
    effect = Effect(_set_by(words), unset, reads, decides=command.decides)
    return Statement((Line(number, text, command.loose, command.is_known, effect), *body), tuple(words))


def _set_by(words: Sequence[str]) -> frozenset[str]:
    """Return the variables that the first words of a command set."""
    start = 1 if words[0] in ("export", "declare", "typeset", "readonly", "local") else 0
    names = map(_ASSIGNMENT.match, words[start:])
    return frozenset(match[1] for match in names if match)


def _used(text: str) -> frozenset[str]:
    return frozenset(_USED.findall(text))


def _ending(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Mark the statements that end the script whatever is true: behind them nothing runs."""
    depth = 0
    for each in statements:
        first, *more = each.words or ("",)
        depth += sum(_depths(each.words))
        starts = first == "exec" and bool(more) and not re.match(r"\d*[<>]|\d\Z", more[0])
        if depth <= 0 and (first in ("exit", "return") or starts):
            line, *body = each.lines
            yield replace(each, lines=(replace(line, effect=replace(line.effect, ends=True)), *body))
        else:
            yield each


def _depths(words: Sequence[str]) -> Iterator[int]:
    """Yield 1 for each word that opens a block, and -1 for each that closes one."""
    for at, word in enumerate(words):
        begins = at == 0 or words[at - 1] in _BEFORE_COMMANDS or _OPERATOR.fullmatch(words[at - 1])
        if begins and word in _OPENING:
            yield 1
        elif begins and word in _CLOSING:
            yield -1


def _exported(statements: Iterable[Statement]) -> list[Statement]:
    """Join ``NAME=VALUE`` with a later ``export NAME``, unless something between them uses the variable."""
    found = list[Statement]()
    for each in statements:
        at = _assigned_before(found, each)
        if at is None:
            found.append(each)
        else:
            line = found[at].lines[0]
            found[at] = replace(found[at], lines=(replace(line, text=f"export {line.text}"),))
    return found


def _assigned_before(statements: Sequence[Statement], export: Statement) -> int | None:
    """Return the index of the assignment that ``export`` completes."""
    if export.fixed or export.words[:1] != ("export",) or _ASSIGNMENT.match(export.words[1]):
        return None
    for at in range(len(statements) - 1, -1, -1):
        each = statements[at]
        if each.conflicts(export):
            is_plain = not each.fixed and len(each.words) == 1 and each.writes == export.writes
            return at if is_plain and not each.lines[0].text.startswith("export") else None
    return None


def _in_order_of(wanted: Sequence[Statement], there: Sequence[Statement]) -> list[Statement]:
    """Return the statements that are ``there`` in the order of those that are ``wanted``, as far as it is free."""
    places = defaultdict[tuple[object, ...], deque[int]](deque)
    for place, each in enumerate(wanted):
        places[each.key].append(place)
    groups = [(-1, list[Statement]())]
    for each in there:
        if own := places.get(each.key):
            groups.append((own.popleft(), [each]))
        else:
            groups[-1][1].append(each)  # what was added stays behind what is before it
    return [each for _, group in [groups[0], *_sorted(groups[1:])] for each in group]


def _sorted(groups: Sequence[tuple[int, list[Statement]]]) -> Iterator[tuple[int, list[Statement]]]:
    """Yield the groups by their place; the order of those whose first statements conflict stays."""
    run = list[tuple[int, list[Statement]]]()
    for group in groups:
        if group[1][0].fixed:
            yield from _sorted_run(run)
            run = []
            yield group
        else:
            run.append(group)
    yield from _sorted_run(run)


def _sorted_run(run: Sequence[tuple[int, list[Statement]]]) -> Iterator[tuple[int, list[Statement]]]:
    """Yield the group with the lowest place of those that no earlier one keeps back, again and again."""
    behind = [[b for b in range(a + 1, len(run)) if run[a][1][0].conflicts(run[b][1][0])] for a in range(len(run))]
    waits_for = Counter(itertools.chain.from_iterable(behind))
    free = [(place, at) for at, (place, _) in enumerate(run) if not waits_for[at]]
    heapq.heapify(free)
    while free:
        _, at = heapq.heappop(free)
        yield run[at]
        for other in behind[at]:
            waits_for[other] -= 1
            if not waits_for[other]:
                heapq.heappush(free, (run[other][0], other))
