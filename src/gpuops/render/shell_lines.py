"""Shell scripts as logical lines with their here-documents, and their words; pure."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SHEBANG = re.compile(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?(\S+)", re.ASCII)
_HERE = re.compile(
    r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|\(\(.*?\)\)|<<<"""
    r"""|<<(?P<dash>-?)[ \t]*(?P<word>(?:\\.|'[^']*'|"[^"]*"|[^\s;&|<>()'"\\])+)""",
    re.ASCII,
)
"""The start of a here-document, and what looks like one: in quotes, in arithmetic, and a here-string."""


@dataclass(frozen=True)
class ShellLine:
    """A logical line of a script: the ``number`` of its first line, and its ``text`` without the comment.

    ``body`` are the lines of its here-documents, each with its number.
    """

    number: int
    text: str
    body: tuple[tuple[int, str], ...] = ()


def shell_lines(text: str, *, with_quotes: bool = False) -> Iterator[ShellLine]:
    """Yield the logical lines of a shell script; comments are left out, among them ``#!`` and directives.

    As in a shell, a line goes on only if the backslash is its last character. With ``with_quotes``, a line also goes on
    up to the end of its quotes, if they have one.
    """
    lines = text.split("\n")
    following = iter(enumerate(lines, 1))
    for number, _ in following:
        line, end = _logical(lines, number - 1, with_quotes=with_quotes)
        for _ in itertools.islice(following, end - number):
            pass
        yield ShellLine(number, line, tuple(_bodies(line, following)))


def _logical(lines: Sequence[str], start: int, *, with_quotes: bool) -> tuple[str, int]:
    """Return the logical line that starts at index ``start``, without its comment, and the index behind its last."""
    words, quote = "", ""
    for at in range(start, len(lines)):
        part, quote = _without_comment(lines[at], quote)
        goes_on = quote != "'" and part == lines[at] and (len(part) - len(part.rstrip("\\"))) % 2 == 1
        words += f"{part[:-1]} " if goes_on else part
        if not goes_on and not (with_quotes and quote):
            return words, at + 1
        words += "" if goes_on else "\n"
    return _logical(lines, start, with_quotes=False) if with_quotes and quote else (words, len(lines))


def _bodies(line: str, following: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Take the here-documents that ``line`` starts from the ``following`` lines, each with its end."""
    for start in _HERE.finditer(line):
        if start["word"]:
            end, indent = re.sub(r"[\\'\"]", "", start["word"]), "\t" if start["dash"] else ""
            yield from _body(end, indent, following, is_quoted=end != start["word"])


def here_ends(line: str) -> set[str]:
    """Return the words that end the here-documents of a line, as they are written."""
    return {start["word"] for start in _HERE.finditer(line) if start["word"]}


def _body(end: str, indent: str, following: Iterator[tuple[int, str]], *, is_quoted: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines up to ``end``; the shell joins them at a backslash unless the word of the end is quoted."""
    goes_on = False
    for number, line in following:
        if line.lstrip(indent) == end and not goes_on:
            return
        goes_on = not is_quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
        yield number, line


def _without_comment(line: str, quote: str = "") -> tuple[str, str]:
    """Return a line of a shell script up to its comment, and the quote in which it ends.

    A comment is a # that begins a word outside quotes; the line begins inside those of ``quote``.
    """
    before = "x" if quote else " "
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote and (before != "\\" or quote == "'") else quote
        elif char in "'\"" and before != "\\":
            quote = char
        elif char == "#" and before in " \t\r\n":
            return line[:at], quote
        before = "x" if before == char == "\\" else char
    return line, quote


def shell_words(line: str) -> list[str]:
    """Return the words and operators of a line without a comment; raise `ValueError` if quotes span lines."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)


def interpreter(line: str) -> str:
    """Return the interpreter of a ``#!`` line with its options, without its directory; empty for any other line."""
    shebang = _SHEBANG.match(line)
    return " ".join([shebang[1], *line[shebang.end() :].split()]) if shebang else ""
