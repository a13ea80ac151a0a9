"""Secret: a value that never shows itself, and a filter that blots it out of any text."""

from __future__ import annotations

import base64
import getpass
import json
import shlex
import threading
from typing import NoReturn

MASK = "*****"
_masked: frozenset[str] = frozenset()  # replaced, never changed: another thread may be reading it
_lock = threading.Lock()


class Secret:
    """A password or token. ``str``, ``repr`` and formats show a mask; it cannot be pickled; `reveal` gives the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text
        if text:
            _mask(text, base64.b64encode(text.encode()).decode(), shlex.quote(text), json.dumps(text)[1:-1])

    def reveal(self) -> str:
        """The text itself, for the one place that must send it."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not written anywhere")


def _mask(*words: str) -> None:
    global _masked  # noqa: PLW0603 - what must not be shown is the whole process's
    with _lock:
        _masked = _masked.union(words)


def redact(text: str) -> str:
    """``text`` with every secret of this process masked, also where base64, a shell's or JSON's quotes hide it."""
    for word in sorted(_masked, key=len, reverse=True):
        text = text.replace(word, MASK)
    return text


def ask(prompt: str) -> Secret:
    """A password typed at the terminal, without echo."""
    return Secret(getpass.getpass(prompt))
