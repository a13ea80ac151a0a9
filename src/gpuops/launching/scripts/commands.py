"""The simple commands of a shell script, and whether each of them runs; pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from gpuops.render.shell_lines import shell_lines, shell_words

TESTS = frozenset("[ [[ test".split())
_BEFORE_A_COMMAND = frozenset("if while until {".split())
_OPENS = frozenset("case for select function".split()) | _BEFORE_A_COMMAND
_CLOSES = frozenset("fi esac done }".split())
_CONNECTS = frozenset("then else elif do ! time".split())
_NEVER = {"&&": ("false",), "||": ("true", ":")}
"""The commands after which an operator never runs the next one."""
_OPERATOR = re.compile(r"[();<>|&]+")
_OF_AN_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)


@dataclass(frozen=True)
class ShellCommand:
    """One simple command; it may not run if ``depends`` on another command, or on a condition.

    One that does not, but is in a ``subshell`` or behind ``&&``, is not one of the script ``itself``. ``never`` is what
    before it keeps it from running at all. One that is ``otherwise`` runs only after a program failed.
    """

    words: tuple[str, ...]
    line: int
    depends: bool
    itself: bool
    subshell: bool = False
    never: str = ""
    otherwise: bool = False


def shell_commands(text: str) -> Iterator[ShellCommand]:
    """Yield the simple commands of a script; bodies of here-documents are left out.

    Raise `ValueError` if quotes span lines.
    """
    reader = _Reader()
    for line in shell_lines(text):
        if not line.text.startswith("#"):
            yield from reader.commands(line.number, shell_words(_without_substitutions(line.text)))


@dataclass
class _Reader:
    """The compound commands, subshells and arrays that are open at a line.

    ``depth`` counts the compound commands; ``fallback`` is that of one behind ``||``. ``array`` is how many subshells
    surround an array: it has the same parentheses. ``goes_on`` is the operator at the end of the line before, if that
    goes on, and ``before`` the command before the operator.
    """

    depth: int = 0
    subshells: int = 0
    array: int | None = None
    goes_on: str = ""
    depends: bool = False
    never: str = ""
    before: tuple[str, ...] = ()
    fallback: int | None = None

    def commands(self, number: int, words: Sequence[str]) -> Iterator[ShellCommand]:
        """Yield the commands of one line."""
        if not self.goes_on:
            self.depends, self.before = False, ()
        pieces = list(_simple(words))
        pieces[0] = (self.goes_on + pieces[0][0], pieces[0][1])
        for (operators, command), (after, _) in itertools.pairwise([*pieces, ("", ())]):
            self._count(operators)
            operator = operators.strip("();")
            if command and self.array is None and not self._is_no_command(command, after):
                yield from self._command(number, operator, command, after.strip("();"))
        self.goes_on = pieces[-1][0].strip("();") if pieces[-1][0].strip(";").endswith(("&&", "||")) else ""

    def _command(self, number: int, operator: str, command: tuple[str, ...], after: str) -> Iterator[ShellCommand]:
        plain = _without(_CONNECTS, command)
        opens = plain[:1] != () and plain[0] in _OPENS
        closes = command[0] in _CLOSES and self.depth > 0
        self.depth += opens
        otherwise = self._connect(operator, command, is_block=opens)
        is_silent = closes or _never(after, command) or (opens and plain[0] not in _BEFORE_A_COMMAND)
        if words := () if is_silent else _without(_CONNECTS, plain[opens:]):
            subshell, depends = self.subshells > 0, self.depth > 0 or self.depends
            itself = not subshell and operator not in ("&&", "||")
            yield ShellCommand(words, number, depends, itself, subshell, self.never, otherwise)
        self.depth -= closes
        if self.fallback is not None and self.depth < self.fallback:
            self.fallback = None

    def _connect(self, operator: str, command: tuple[str, ...], *, is_block: bool) -> bool:
        """Take in what an operator makes of ``command``; return True if that runs only after a program failed."""
        tested = self.before[:1] != () and self.before[0] in TESTS
        self.never = _never(operator, self.before) or (self.never if operator == "&&" else "")
        self.depends = operator in ("&&", "||") and (self.depends or tested or operator == "||") and not self.never
        self.before = command
        replaces = operator == "||" and not tested
        if replaces and is_block and self.fallback is None:
            self.fallback = self.depth
        return replaces or self.fallback is not None

    def _count(self, operators: str) -> None:
        """Take in the parentheses among ``operators``; the first one opens an array if that was begun just before."""
        if self.array is None and operators.startswith("(") and self.before[-1:] == ("",):
            self.array = self.subshells
        self.subshells = max(0, self.subshells + operators.count("(") - operators.count(")"))
        if self.array is not None and self.subshells <= self.array:
            self.array = None

    def _is_no_command(self, command: Sequence[str], after: str) -> bool:
        """Return True for the name of a function that is defined, of an array, and for a pattern of ``case``."""
        if after.startswith("(") and _OF_AN_ARRAY.fullmatch(command[-1]):
            self.before = ("",)
            return True
        return after.startswith("()") or (after.startswith(")") and self.depth > 0 and not self.subshells)


def _without(words: Collection[str], command: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command behind the ``words`` with which it begins."""
    return tuple(itertools.dropwhile(words.__contains__, command))


def _never(operator: str, before: Sequence[str]) -> str:
    """Return the command before an operator with which the next one never runs, with the operator."""
    if len(before) == 1 and before[0] in _NEVER.get(operator, ()):
        return f"{before[0]} {operator}"
    return ""


def _without_substitutions(line: str) -> str:
    """Return a line with ``$_`` in place of what another command prints; raise `ValueError` if that spans lines."""
    line = re.sub(r"`[^`]*`", "$_", line)
    while (start := line.find("$(")) >= 0:
        depth = 0
        for at in range(start + 1, len(line)):
            depth += (line[at] == "(") - (line[at] == ")")
            if not depth:
                break
        else:
            raise ValueError("no end of $(")
        line = f"{line[:start]}$_{line[at + 1 :]}"
    return line


def _simple(words: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each command of a line, without its redirections, and the operators before it; last those at the end."""
    operators, command, redirects = "", list[str](), False
    for word in (*words, ";"):
        if not _OPERATOR.fullmatch(word):
            if not redirects:
                command.append(word)
        elif "<" in word or ">" in word:
            redirects = True  # a file, or the number of a descriptor
        else:
            if command:
                yield operators, tuple(command)
            operators, command, redirects = word if command else operators + word, [], False
    yield operators, ()
