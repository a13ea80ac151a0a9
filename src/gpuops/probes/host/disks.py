"""Local file systems and their usage, from ``df -P -k``.

``/dev/sda1 1000 600 300 67% /`` has 1000 KiB, of which 600 are used and 300 available to users: 66.7 percent used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

PSEUDO = frozenset({"tmpfs", "devtmpfs", "udev", "overlay", "efivarfs", "none", "shm", "rootfs", "dev", "run"})
_ROW = re.compile(r"(\S.*?)\s+(\d{1,18})\s+(\d{1,18})\s+(-?\d{1,18})\s+(?:\d+%|-)\s+(/.*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Filesystem:
    """One row of df; sizes in KiB (1024 bytes). ``available_kib`` is the space available to users other than root."""

    device: str
    size_kib: int
    used_kib: int
    available_kib: int
    mount: str

    @property
    def used_percent(self) -> float:
        """Used part of the space that users can use, in percent, like df's Capacity."""
        usable = self.used_kib + max(self.available_kib, 0)
        return 100 * self.used_kib / usable if usable else 0.0

    @property
    def is_pseudo(self) -> bool:
        """True if the row is not a disk: memory, containers, read-only images (always full)."""
        return self.device in PSEUDO or self.device.startswith("/dev/loop") or self.size_kib == 0


def parse_df(text: str) -> tuple[Filesystem, ...] | Unknown:
    """Return every row of ``df -P -k``."""
    header, *rows = text.splitlines() or [""]
    if " 1024-" not in header or not text.endswith("\n") or not rows:
        return Unknown(f"df: expected its table, found {text[-80:]!r}")
    filesystems = []
    for row in rows:
        cells = _ROW.fullmatch(row)
        if cells is None:
            return Unknown(f"df: expected device, sizes and mount, found {row[:80]!r}")
        filesystems.append(Filesystem(cells[1], int(cells[2]), int(cells[3]), int(cells[4]), cells[5]))
    return tuple(filesystems)


def _read(answer: Completed) -> tuple[Filesystem | Unknown, ...] | Unknown:
    """Parse df's answer; it exits with 1 if it cannot read a mount, and lists the others (coreutils manual, df).

    A mount that this session may not read is one of a user (FUSE), and irrelevant for the space on disks.
    """
    errors = [line.strip() for line in answer.err.splitlines()]
    refused = [line for line in errors if line.endswith(("Permission denied", "Operation not permitted"))]
    rows = parse_df(answer.out)
    if isinstance(rows, Unknown):
        return Unknown(errors[-1][:160]) if answer.exit and errors else rows
    if not answer.exit:
        return rows
    unread = [line for line in errors if line and line not in refused]
    if not unread and not refused:
        unread = ["df exited with 1 without a reason"]
    return (*rows, *(Unknown(line[:160]) for line in unread))


disks: Probe[tuple[Filesystem | Unknown, ...]] = Probe(
    "disks", Command(("df", "-l", "-P", "-k")), _read, accepts=frozenset({0, 1})
)
"""Every local file system, and what df says of those that it could not read."""
