"""Software RAID, from /proc/mdstat.

``md0 : active raid5 sdd1[3] sdb1[1] sda1[0]`` with ``[4/3] [UUU_]`` has 3 of its 4 members.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_PATH = "/proc/mdstat"
_ARRAY = re.compile(r"(md[\w-]+) : (active|inactive|broken)(?: \([\w-]+\))*(?: (raid\d+|linear|multipath|faulty))?(.*)")
_MEMBERS = re.compile(r"\[(\d{1,4})/(\d{1,4})\] \[[U_]+\]", re.ASCII)
_ACTION = re.compile(r"(recovery|resync|reshape|check|repair) *= *([\d.]+%|PENDING|DELAYED)?")


@dataclass(frozen=True, slots=True)
class Array:
    """One array. ``level`` is empty if it is not assembled; ``wanted`` and ``working`` are None for raid0.

    ``action`` is what the kernel does with it now: recovery, resync, check. ``external`` is a container that firmware
    RAID keeps inactive by design.
    """

    name: str
    state: str
    level: str
    members: tuple[str, ...]
    failed: tuple[str, ...]
    wanted: int | None = None
    working: int | None = None
    action: str = ""
    external: bool = False


def parse_mdstat(text: str) -> tuple[Array, ...] | Unknown:
    """Return the arrays; without the file, the kernel has no md driver and there are none."""
    files = read_files(text)
    if _PATH not in files:
        return () if not text else Unknown(f"{_PATH} cannot be read")
    if not files[_PATH].startswith("Personalities"):
        return Unknown(f"{_PATH}: expected Personalities, found {files[_PATH][:60]!r}")
    blocks = re.split(r"\n(?=md|unused)", files[_PATH])[1:]
    if not blocks or not blocks[-1].startswith("unused devices"):
        return Unknown(f"{_PATH} is truncated")
    arrays = [_array(block) for block in blocks[:-1]]
    unread = next((block for block, array in zip(blocks, arrays, strict=False) if array is None), None)
    return Unknown(f"{_PATH}: expected an array, found {unread[:60]!r}") if unread else tuple(filter(None, arrays))


def _array(block: str) -> Array | None:
    row, _, rest = block.partition("\n")
    match = _ARRAY.fullmatch(row)
    if match is None:
        return None
    words = match[4].split()
    counts, action = _MEMBERS.search(rest), _ACTION.search(rest)
    return Array(
        name=match[1],
        state=match[2],
        level=match[3] or "",
        members=tuple(word.partition("[")[0] for word in words),
        failed=tuple(word.partition("[")[0] for word in words if "(F)" in word),
        wanted=int(counts[1]) if counts else None,
        working=int(counts[2]) if counts else None,
        action=action[1] if action else "",
        external="super external:" in rest,
    )


md_raid: Probe[tuple[Array, ...]] = Probe("md_raid", Files((_PATH,)), lambda answer: parse_mdstat(answer.out))
"""Arrays of the kernel's software RAID."""
