"""A type for secrets that never shows its value, and a filter that masks all secrets in a text."""

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
    """Password or token. ``str``, ``repr`` and formats show a mask, and it cannot be pickled; see `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text
        if text:
            _mask(text, base64.b64encode(text.encode()).decode(), shlex.quote(text), json.dumps(text)[1:-1])

    def reveal(self) -> str:
        """Return the text itself, for the one place that must send it."""
        return self._text

    def __repr__(self) -> str:
        return MASK

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle a Secret: it must never be written anywhere")


def _mask(*words: str) -> None:
    global _masked  # noqa: PLW0603 - secrets must be masked in the whole process
    with _lock:
        _masked = _masked.union(words)


def redact(text: str) -> str:
    """Return ``text`` with all secrets of this process masked, also in base64, shell-quoted or JSON-escaped form."""
    for word in sorted(_masked, key=len, reverse=True):
        text = text.replace(word, MASK)
    return text


def ask(prompt: str) -> Secret:
    """Ask for a password at the terminal, without echo."""
    return Secret(getpass.getpass(prompt))
