"""Shell scripts as lines and words, in one spelling for all that a shell and torchrun read alike; pure."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"#(!|SBATCH|PBS|FLUX|BSUB)")
_SHEBANG = re.compile(r"#!\s*(?:\S*/env\s+)?(?:\S*/)?(\S+)")
_HERE = re.compile(
    r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|\(\(.*?\)\)|<<<"""
    r"""|<<(?P<dash>-?)[ \t]*(?P<word>(?:\\.|'[^']*'|"[^"]*"|[^\s;&|<>()'"\\])+)"""
)
"""The start of a here-document, and what looks like one: in quotes, in arithmetic, and a here-string."""
_PIECE = re.compile(
    r"""(?P<space>\s+)|(?P<operator>[();<>|&]+)|'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"|\\(?P<escaped>.)"""
    r"""|(?P<plain>[^\s();<>|&'"\\]+)"""
)
_EXPANDS = re.compile(r"[$`*?\[{~]")
"""What the shell replaces outside quotes."""
_EXPANDS_IN_QUOTES = re.compile(r"(?<!\\)(?:\\\\)*[$`]")
_LAUNCHERS = (["torchrun"], ["-m", "torch.distributed.run"], ["accelerate", "launch"])
_WITH_VALUE = frozenset(
    "--nnodes --nproc-per-node --node-rank --master-addr --master-port --max-restarts --rdzv-backend --rdzv-endpoint"
    " --rdzv-id --local-addr --config-file --num-machines --num-processes --machine-rank --main-process-ip"
    " --main-process-port".split()
)
"""The options of torchrun and accelerate launch that launch files set; both take them in several spellings."""


@dataclass(frozen=True)
class ShellLine:
    """A logical line of a script: the ``number`` of its first line, and its ``text`` without the comment.

    ``body`` are the lines of its here-documents, each with its number.
    """

    number: int
    text: str
    body: tuple[tuple[int, str], ...] = ()


def shell_lines(text: str) -> Iterator[ShellLine]:
    """Yield the logical lines of a shell script.

    ``#!`` and directives such as ``#SBATCH`` are no comments if they begin the line. As in a shell, a line goes on only
    if the backslash is its last character.
    """
    lines = enumerate(text.split("\n"), 1)
    for number, first in lines:
        line = part = first
        while part.endswith("\\") and not part.lstrip().startswith("#"):
            _, part = next(lines, (0, ""))
            line = f"{line[:-1]} {part}"
        words = line if _DIRECTIVE.match(line) else _without_comment(line)
        yield ShellLine(number, words, tuple(_bodies(words, lines)))


def _bodies(line: str, following: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Take the here-documents that ``line`` starts from the ``following`` lines, each with its end."""
    for start in _HERE.finditer(line):
        if start["word"]:
            end, indent = re.sub(r"[\\'\"]", "", start["word"]), "\t" if start["dash"] else ""
            yield from _body(end, indent, following, is_quoted=end != start["word"])


def _body(end: str, indent: str, following: Iterator[tuple[int, str]], *, is_quoted: bool) -> Iterator[tuple[int, str]]:
    """Yield the lines up to ``end``; the shell joins them at a backslash unless the word of the end is quoted."""
    goes_on = False
    for number, line in following:
        if line.lstrip(indent) == end and not goes_on:
            return
        goes_on = not is_quoted and (len(line) - len(line.rstrip("\\"))) % 2 == 1
        yield number, line


def _without_comment(line: str) -> str:
    """Return a line of a shell script up to its comment: a # that begins a word outside quotes."""
    quote, before = "", " "
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote and before != "\\" else quote
        elif char in "'\"" and before != "\\":
            quote = char
        elif char == "#" and before.isspace():
            return line[:at]
        before = char
    return line


def shell_words(line: str) -> list[str]:
    """Return the words and operators of a line without a comment; raise `ValueError` if quotes span lines."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)


def one_spelling(line: str) -> str:
    """Return the words of a line as all spellings of the same have them; as they are, if quotes span lines."""
    if shebang := _SHEBANG.match(line):
        return " ".join(["#!", shebang[1], *line[shebang.end() :].split()])
    if line.lstrip().startswith("#"):
        return " ".join(line.split())
    try:
        return " ".join(_with_options_alike(list(_spelled(line))))
    except ValueError:
        return " ".join(line.split())


def _spelled(line: str) -> Iterator[str]:
    """Yield the words and operators of a line, quoted only where that matters; raise `ValueError` as `_pieces` does.

    The end of a here-document stays as it is: quotes decide whether the shell expands what is in it.
    """
    before = ""
    for pieces in _pieces(line):
        written = "".join(piece[0] for piece in pieces)
        runs = itertools.groupby(pieces, _expands)
        spelled = (
            "".join(p[0] for p in run) if expands else shlex.quote("".join(map(_unquoted, run)))
            for expands, run in runs
        )
        yield written if before == "<<" else "".join(spelled)
        before = written


def _pieces(line: str) -> list[list[re.Match[str]]]:
    """Return the pieces of each word: bare, quoted and escaped ones; raise `ValueError` if quotes span lines."""
    words, at = [list[re.Match[str]]()], 0
    while at < len(line):
        piece = _PIECE.match(line, at)
        if piece is None:
            raise ValueError("quotes span lines")
        at = piece.end()
        if piece.lastgroup in ("space", "operator"):
            words += [[piece] if piece.lastgroup == "operator" else [], []]
        else:
            words[-1].append(piece)
    return [pieces for pieces in words if pieces]


def _expands(piece: re.Match[str]) -> bool:
    """Return True for an operator, and for a piece in which the shell replaces something."""
    pattern = {"plain": _EXPANDS, "double": _EXPANDS_IN_QUOTES, "operator": _PIECE}.get(piece.lastgroup or "")
    return pattern is not None and pattern.search(piece[piece.lastgroup or 0]) is not None


def _unquoted(piece: re.Match[str]) -> str:
    text = str(piece[piece.lastgroup or 0])
    return re.sub(r'\\([$`"\\])', r"\1", text) if piece.lastgroup == "double" else text


def _with_options_alike(words: list[str]) -> list[str]:
    """Return the words with the launcher's own options as ``--a-name=value``."""
    ends = (
        at + len(name)
        for at in range(len(words))
        for name in _LAUNCHERS
        if [words[at].rpartition("/")[2], *words[at + 1 : at + len(name)]] == name
    )
    start = next(ends, len(words))
    options, rest = list[str](), words[start:]
    while rest and rest[0].startswith("--"):
        name, equals, value = rest.pop(0).partition("=")
        name = name.replace("_", "-")
        if name in _WITH_VALUE and not equals and rest:
            equals, value = "=", rest.pop(0)
        options.append(f"{name}{equals}{value}")
    return [*words[:start], *options, *rest]
