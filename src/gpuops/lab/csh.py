"""A simulated C shell as the login shell, limited to what it rejects in a command meant for sh.

Each error is worded as in tcsh. What it accepts means the same to sh, which then runs it.
"""

from __future__ import annotations

import re

_ASSIGNMENT = re.compile(r"^\s*([A-Za-z_]\w*=\S*)")
_SH_ONLY_WORDS = re.compile(r"(?:^|[;&|]\s*)(export|local|read|then|do|case|function)\s")


def complaint(command: str) -> str | None:
    """Return why a C shell rejects ``command``; None if it accepts it."""
    bare, open_quote = _outside_quotes(command)
    if open_quote:
        return f"Unmatched '{open_quote}'."
    if re.search(r"!(?![\s=(]|$)", _outside_quotes(command, history=True)[0]):
        return "Event not found."
    if re.search(r"\$\(", bare):
        return "Illegal variable name."
    if re.search(r"\d>&?|<<<", bare):
        return "Ambiguous output redirect."
    assigned = _ASSIGNMENT.match(bare)
    if assigned:
        return f"{assigned[1]}: Command not found."
    word = _SH_ONLY_WORDS.search(bare)
    return f"{word[1]}: Command not found." if word else None


def _outside_quotes(command: str, *, history: bool = False) -> tuple[str, str]:
    """Return the text outside quotes, and a quote that a line leaves open; with ``history``, quoted text stays.

    Two rules differ from sh: quoted text must not cross a line unless the line ends in a backslash, and neither kind of
    quotes protects ``!`` from history expansion.
    """
    kept: list[str] = []
    quote, at = "", 0
    while at < len(command):
        char = command[at]
        if char == "\\" and quote != "'":
            at += 2
            continue
        if char == "\\" and command[at + 1 : at + 2] in ("!", "\n"):
            at += 2
            continue
        if char == "\n" and quote:
            return "".join(kept), quote
        if quote:
            quote = "" if char == quote else quote
            kept.append(char if history else "")
        elif char in "'\"`":
            quote = char
        else:
            kept.append(char)
        at += 1
    return "".join(kept), quote
