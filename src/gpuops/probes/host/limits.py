"""Resource limits of the SSH session, which a job started over SSH would inherit.

``Max locked memory  8388608  unlimited  bytes`` is a soft limit of 8388608 bytes and no hard limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_PATH = "/proc/self/limits"
_ROW = re.compile(r"(Max [a-z ]+?) {2,}(\d{1,20}|unlimited) +(\d{1,20}|unlimited)(?: +\w+)? *", re.ASCII)


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit in the kernel's unit (bytes, files, processes, …); None means unlimited."""

    soft: int | None
    hard: int | None


def parse_limits(text: str) -> dict[str, Limit] | Unknown:
    """Return the limits by the kernel's name (``Max locked memory``), from /proc/self/limits."""
    header, *rows = read_files(text).get(_PATH, "").splitlines() or [""]
    matches = [_ROW.fullmatch(row) for row in rows]
    if not header.startswith("Limit ") or not rows or None in matches:
        return Unknown(f"{_PATH}: expected a table of limits, found {text[-80:]!r}")
    return {match[1]: Limit(_bound(match[2]), _bound(match[3])) for match in matches if match}


def _bound(text: str) -> int | None:
    return None if text == "unlimited" else int(text)


limits: Probe[dict[str, Limit]] = Probe("limits", Files((_PATH,)), lambda answer: parse_limits(answer.out))
"""Resource limits of the SSH session."""
