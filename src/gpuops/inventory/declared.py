"""Nodes that are declared with their GPUs (``gpu[01-04]:8,gpu05:4``), so that none has to be asked."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

from gpuops.document import Where
from gpuops.errors import PatternError
from gpuops.inventory.names import LOCALHOST, check_host, is_ipv6, unfold
from gpuops.inventory.patterns import split

_WITH_GPUS = re.compile(r"(.+):([0-9]+)")
_WITH_A_WORD = re.compile(r"(.*[0-9\]]):([^0-9:\[\]!&]*)")
_MOST_GPUS = 1024
"""More GPUs than any node has: a larger number is a port, or a slip."""


def declared_gpus(pattern: str) -> dict[str, int]:
    """Return the number of GPUs by node of ``gpu[01-04]:8,gpu05:4``; empty if ``pattern`` declares none.

    Raise `PatternError` for a node without a number and for one that is declared twice.
    """
    parts = [part.strip() for part in split(pattern, ",")]
    matches = [None if is_ipv6(part) else _WITH_GPUS.fullmatch(part) for part in parts]
    if not any(matches):
        return {}
    declared: dict[str, int] = {}
    for part, match in zip(parts, matches, strict=True):
        if match is None:
            raise PatternError(f'"{part}" lacks its number of GPUs; expected {part or "gpu01"}:8')
        for name in _names(match[1]):
            if name in declared:
                raise PatternError(f'"{pattern}" declares {name} twice')
            declared[name] = _gpus(part, match[2])
    return declared


def with_gpus(pattern: str | None) -> str:
    """Return an example of ``pattern`` that declares its nodes; empty if it names no nodes by themselves."""
    parts = [part.strip() for part in split(pattern or "", ",")]
    is_plain = parts != ["all"] and all(re.fullmatch(r"[\w.\[\]-]+", part) for part in parts)
    return ",".join(f"{part}:8" for part in parts) if is_plain else ""


def refusal(*patterns: str) -> str:
    """Return why ``patterns`` that declare nodes with their GPUs select no hosts, or what they lack for that.

    It is empty if they are other patterns.
    """
    for pattern in patterns:
        parts = [part.strip() for part in split(pattern, ",")]
        if parts and all(_WITH_GPUS.fullmatch(part) and not is_ipv6(part) for part in parts):
            only = "only place and render take nodes with their number of GPUs, because they ask none"
            return f'"{pattern}": {only}; name the hosts alone: {re.sub(":[0-9]+(?=,|$)", "", pattern)}'
        if match := next(filter(None, map(_WITH_A_WORD.fullmatch, parts)), None):
            return (
                f'"{pattern}" is a pattern only with an inventory (-i FILE), and "{match[2]}" is not a number of GPUs;'
                f" expected {match[1]}:8"
            )
    return ""


def _names(folded: str) -> Iterator[str]:
    for name in unfold(folded, Where("PATTERN")):
        yield socket.gethostname() if name in LOCALHOST else check_host(name, Where("PATTERN"))


def _gpus(part: str, digits: str) -> int:
    if len(digits) > 4 or not 1 <= int(digits) <= _MOST_GPUS:
        raise PatternError(f'"{part}": a node has 1 to {_MOST_GPUS} GPUs, not {digits}')
    return int(digits)
