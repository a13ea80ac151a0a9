"""Commands without the files that their output goes to, which change nothing for a job; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_TO_FILE = re.compile(r"[12]?>[>|]?|&>>?")
_TO_OTHER = re.compile(r"[12]?>&")
_OPERATOR = re.compile(r"\d*[();<>|&]+")
_NAMING = re.compile(r"\$\((?:hostname|uname|date)\b[^$`()|&;<>]*\)")
"""Commands whose output people put in the name of a log; they do nothing else."""
_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_TEE_OPTIONS = frozenset({"-a", "-i", "-ai", "-ia", "--append", "--ignore-interrupts"})


def without_log(words: Sequence[str]) -> tuple[list[str], bool]:
    """Return a command without its log files, and whether ``tee`` wrote them; as it is if its output has a reader."""
    pipe = next((at for at, word in enumerate(words) if word in ("|", "|&")), len(words))
    if pipe < len(words) and not _is_tee(words[pipe + 1 :]):
        return [*words], False
    kept = [*_without_redirections(words[:pipe])]
    is_input = any(file in kept for file in words[pipe + 1 :])
    return ([*words], False) if is_input else (kept, pipe < len(words))


def _is_tee(words: Sequence[str]) -> bool:
    """Return True for ``tee`` with nothing but files that it writes."""
    files = [word for word in words[1:] if word not in _TEE_OPTIONS]
    return words[:1] == ["tee"] and bool(files) and all(map(_is_file, files))


def _without_redirections(words: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(words):
        target = words[at + 1] if at + 1 < len(words) else ""
        to_file = _TO_FILE.fullmatch(words[at]) and _is_file(target) and words.count(target) == 1
        if to_file or (_TO_OTHER.fullmatch(words[at]) and target in ("1", "2")):
            at += 2
        else:
            yield words[at]
            at += 1


def _is_file(word: str) -> bool:
    """Return True for a file whose name needs no command that may do something else."""
    runs = re.search(r"\$\(|`", _NAMING.sub("", word))
    is_device = word.startswith("/dev/") and word not in _DEVICES
    return bool(word) and not (_OPERATOR.fullmatch(word) or word.startswith("-") or runs or is_device)
