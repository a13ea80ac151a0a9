r"""Mounted file systems, and those that should be mounted, as the kernel and /etc/fstab list them.

No mount point is touched, for one whose server is gone would hang. ``36 23 9:1 / /scratch rw - ext4 /dev/md1 rw`` is
/dev/md1 on /scratch. Spaces in a path are written ``\040``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_PATH, _TABLE = "/proc/self/mountinfo", "/etc/fstab"
_LIMIT_BYTES = 1 << 20  # a node with many containers has a line of 300 bytes for each of their layers
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system; ``device`` is its number, such as ``253:0``."""

    path: str
    source: str
    kind: str
    device: str
    is_read_only: bool


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One line of /etc/fstab."""

    source: str
    path: str
    kind: str
    options: frozenset[str]


@dataclass(frozen=True)
class Mounts:
    """What is mounted, the last mount of a path last, and what /etc/fstab lists; nothing if there is no such file."""

    mounted: tuple[Mount, ...]
    table: tuple[TableEntry, ...] = ()

    def at(self, path: str) -> Mount | None:
        """Return what is visible at ``path``."""
        return next((mount for mount in reversed(self.mounted) if mount.path == path), None)


def parse_mounts(text: str) -> Mounts | Unknown:
    """Return the mounts in the files of `mounts`."""
    files = read_files(text)
    lines = files.get(_PATH, "")
    if not lines.endswith("\n") or len(lines.encode()) >= _LIMIT_BYTES:
        return Unknown(f"{_PATH} cannot be read to its end")
    mounted = [_mount(line) for line in lines.splitlines()]
    if None in mounted:
        return Unknown(f"{_PATH}: a line has another form")
    entries = (line.split() for line in files.get(_TABLE, "").splitlines())
    table = (
        TableEntry(_plain(words[0]), _plain(words[1]), words[2], frozenset(words[3].split(",") if words[3:] else ()))
        for words in entries
        if len(words) > 2 and not words[0].startswith("#")
    )
    return Mounts(tuple(mount for mount in mounted if mount), tuple(table))


def _mount(line: str) -> Mount | None:
    head, dash, tail = line.partition(" - ")
    fields, rest = head.split(" "), tail.split(" ")
    if not dash or len(fields) < 6 or len(rest) < 3:
        return None
    is_read_only = "ro" in fields[5].split(",") or "ro" in rest[2].split(",")
    return Mount(_plain(fields[4]), _plain(rest[1]), rest[0], fields[2], is_read_only)


def _plain(word: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), word) if "\\" in word else word


mounts: Probe[Mounts] = Probe(
    "mounts", Files((_PATH, _TABLE), limit_bytes=_LIMIT_BYTES), lambda answer: parse_mounts(answer.out)
)
"""Mounted file systems, and those in /etc/fstab."""
