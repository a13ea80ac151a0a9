"""The words of a shell command, in one spelling for all that a shell reads alike; pure."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuops.render.shell_lines import here_ends

_OPERATOR = re.compile(r"[();<>|&]+")
_SPACE = re.compile(r"[ \t\r\n]+")
_PLAIN = re.compile(r"[^ \t\r\n();<>|&'\"\\$`]+")
_PLAIN_IN_QUOTES = re.compile(r"[^\"\\$`]+")
_PARAMETER = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_BRACED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])\}")
"""An expansion that means the same without its braces."""
_GLOB = re.compile(r"[*?\[{}~]")
_NAMED = re.compile(r"[\w.-]+=(?=[^\n]*\Z)", re.ASCII)
_TESTS = frozenset({"!", "]", "]]"})
_CLOSING = {"(": ")", "{": "}"}


@dataclass(frozen=True)
class _Part:
    """A part of a word: literal text, or what the shell expands (``expands``), in double quotes or not."""

    text: str
    expands: bool = False
    is_quoted: bool = False


def spelled_words(line: str) -> list[str]:
    """Return the words and operators of a line, quoted only where that matters; raise `ValueError` for open quotes.

    The word of a here-document only tells whether it is quoted: that decides whether the shell expands what is in it.
    """
    words, parts, at, start = list[str](), list[_Part](), 0, 0
    while at <= len(line):
        separator = _SPACE.match(line, at) or _OPERATOR.match(line, at)
        if separator or at == len(line):
            descriptor = _descriptor(line[start:at], separator)
            if at > start and not descriptor:
                ends = here_ends(line) if words[-1:] == ["<<"] else ()
                words.append(_end_of_document(line[start:at], ends) or "".join(_spelled(parts)))
            words += [descriptor + separator[0]] if separator and not separator[0].isspace() else []
            parts, start = [], separator.end() if separator else at + 1
            at = start
        else:
            more, at = _parts(line, at)
            parts += more
    return words


def _descriptor(word: str, separator: re.Match[str] | None) -> str:
    """Return the word if it is the number of the file that a redirection right behind it redirects; else nothing."""
    return word if separator and separator[0][0] in "<>" and word.isascii() and word.isdigit() else ""


def _end_of_document(word: str, ends: Iterable[str]) -> str:
    """Return the word in one spelling if it is the end of a here-document; else an empty text."""
    plain = word.removeprefix("-")
    if plain not in ends:
        return ""
    is_quoted = any(char in plain for char in "'\"\\")
    return f"{'-' if plain != word else ''}{chr(39) * is_quoted}HERE{chr(39) * is_quoted}"


def _parts(line: str, at: int) -> tuple[list[_Part], int]:
    """Return the parts from ``at`` up to the end of one piece: bare, quoted, escaped or expanded; and that end."""
    if line[at] == "'":
        end = _found(line, "'", at + 1)
        return [_Part(line[at + 1 : end], is_quoted=True)], end + 1
    if line[at] == '"':
        return _double_quoted(line, at + 1)
    if line[at] == "\\":
        return [_Part(line[at + 1 : at + 2])], at + 2
    if line.startswith(("$'", '$"'), at):
        end = _parts(line, at + 1)[1]
        return [_Part(line[at:end], expands=True)], end
    if line[at] in "$`":
        return _expansion(line, at, is_quoted=False)
    end = _behind(_PLAIN, line, at)
    return [_Part(line[at:end], expands=_GLOB.search(line, at, end) is not None)], end


def _double_quoted(line: str, at: int) -> tuple[list[_Part], int]:
    """Return the parts of a text in double quotes, whose first character is at ``at``, and where it ends."""
    parts = [_Part("", is_quoted=True)]
    while line[at : at + 1] != '"':
        if at >= len(line):
            raise ValueError("quotes span lines")
        if line[at] == "\\":
            kept = line[at + 1 : at + 2] if line[at + 1 : at + 2] in {"$", "`", '"', "\\"} else line[at : at + 2]
            more, at = [_Part(kept, is_quoted=True)], at + 2
        elif line[at] in "$`":
            more, at = _expansion(line, at, is_quoted=True)
        else:
            end = _behind(_PLAIN_IN_QUOTES, line, at)
            more, at = [_Part(line[at:end], is_quoted=True)], end
        parts += more
    return parts, at + 1


def _expansion(line: str, at: int, *, is_quoted: bool) -> tuple[list[_Part], int]:
    """Return what the shell expands at ``at``, and where it ends; a $ before nothing that it expands is text.

    A command whose parenthesis is closed on another line is an expansion of the $ alone.
    """
    try:
        end = _end_of_expansion(line, at)
    except ValueError:
        if is_quoted or line[at] == "`":
            raise
        return [_Part("$", expands=True)], at + 1
    if end == at + 1:
        return [_Part("$", is_quoted=is_quoted)], end
    return [_Part(_inner(line[at:end]), expands=True, is_quoted=is_quoted)], end


def _end_of_expansion(line: str, at: int) -> int:
    """Return the index behind what the shell expands at ``at``; only that character if it expands nothing.

    Raise `ValueError` if it is not closed: then neither is what is around it, and nobody needs to look again.
    """
    if line[at] == "`":
        return _found(line, "`", at + 1) + 1
    if parameter := _PARAMETER.match(line, at):
        return parameter.end()
    closing = _CLOSING.get(line[at + 1 : at + 2])
    return _closed(line, at + 2, closing) if closing else at + 1


def _end_of_piece(line: str, at: int) -> int:
    """Return the index behind the quoted, escaped or expanded piece at ``at``."""
    if line[at] == "\\":
        return at + 2
    if line[at] in "$`":
        return _end_of_expansion(line, at)
    if line[at] == "'":
        return _found(line, "'", at + 1) + 1
    at += 1
    while at < len(line) and line[at] != '"':
        at = _end_of_piece(line, at) if line[at] in "\\$`" else _behind(_PLAIN_IN_QUOTES, line, at)
    return at + 1


def _inner(text: str) -> str:
    """Return an expansion in one spelling; of a command, also its words."""
    if text.startswith("$(") and not text.startswith("$((") and "\n" not in text:
        return f"$({' '.join(spelled_words(text[2:-1]))})"
    return _BRACED.sub(r"$\1", text) if _BRACED.fullmatch(text) else text


def _closed(line: str, at: int, closing: str) -> int:
    """Return the index behind the parenthesis or brace that closes the one before ``at``."""
    opening, depth = {")": "(", "}": "{"}[closing], 1
    while at < len(line):
        if line[at] in "'\"\\$`" and not (line[at] == "'" and closing == "}"):
            at = _end_of_piece(line, at)
            continue
        depth += (line[at] == opening) - (line[at] == closing)
        at += 1
        if not depth:
            return at
    raise ValueError("quotes span lines")


def _behind(pattern: re.Pattern[str], line: str, at: int) -> int:
    match = pattern.match(line, at)
    return match.end() if match else at + 1


def _found(line: str, end: str, at: int) -> int:
    found = line.find(end, at)
    if found < 0:
        raise ValueError("quotes span lines")
    return found


def _spelled(parts: Iterable[_Part]) -> Iterator[str]:
    """Yield the runs of text, of quoted expansions and of bare ones."""
    runs = itertools.groupby(parts, lambda part: (part.expands, part.expands and part.is_quoted))
    pieces = [(*kind, [part.text for part in run]) for kind, run in runs]
    pieces = [piece for piece in pieces if piece[0] or any(piece[2])] or [(False, False, [""])]
    for at, (expands, is_quoted, texts) in enumerate(pieces):
        if not expands:
            yield _quoted("".join(texts))
        else:
            following = pieces[at + 1][2][0] if at + 1 < len(pieces) and not is_quoted else ""
            joined = "".join(_apart(texts, following))
            yield f'"{joined}"' if is_quoted else joined


def _apart(texts: list[str], following: str) -> Iterator[str]:
    """Yield expansions so that a name does not go on in the text behind it."""
    for text, after in zip(texts, [*texts[1:], following], strict=True):
        goes_on = _PARAMETER.fullmatch(text) and re.match(r"[\w\[]", after)
        yield f"${{{text[1:]}}}" if goes_on else text


def _quoted(text: str) -> str:
    """Return a text in quotes if it needs them; what is before an = stays in front, as in NAME=VALUE."""
    if text in _TESTS:
        return text
    name = _NAMED.match(text)
    return f"{name[0]}{shlex.quote(text[name.end() :])}" if name and text[name.end() :] else shlex.quote(text)
