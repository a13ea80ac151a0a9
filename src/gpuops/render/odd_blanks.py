"""Characters that Python and people take for blanks, or do not see, and the reader of a launch file does not; pure."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator

from gpuops.render.line_differences import FileDifference

_ODD = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
_INVISIBLE = frozenset({"Cf", "Zs"})
"""What is harmless in a comment; the others may end its line."""


def odd_blanks(path: str, wanted: str, there: str) -> Iterator[FileDifference]:
    """Yield each odd blank of the text ``there``, once a line, unless ``wanted`` has as many of them."""
    found = [*_places(there)]
    more = Counter(char for _, char in found) - Counter(char for _, char in _places(wanted))
    for number, char in dict.fromkeys(found):
        if char in more:
            yield FileDifference(path, f":{number}: has {_named(char)}, which no shell takes for a blank")


def _places(text: str) -> Iterator[tuple[int, str]]:
    """Yield the odd blanks of a text, each with the number of its line."""
    odd = frozenset(filter(_is_odd, {*text}))
    for number, line in enumerate(text.split("\n") if odd else (), 1):
        is_comment = line.lstrip(" \t").startswith("# ")
        for char in line:
            if char in odd and not (is_comment and unicodedata.category(char) in _INVISIBLE):
                yield number, char


def _is_odd(char: str) -> bool:
    """Return True for all blanks, controls and zero-width characters but those that every reader knows."""
    return char not in "\n\t\r " and (char.isspace() or unicodedata.category(char) in _ODD)


def _named(char: str) -> str:
    return f"U+{ord(char):04X} ({unicodedata.name(char, 'a control character')})"
