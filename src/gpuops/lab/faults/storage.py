"""Faults of NVMe drives and of the software RAID on them."""

from __future__ import annotations

from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault, whole
from gpuops.lab.model import Node


def _with_drive(node: Node, value: str, **changes: object) -> Node:
    number = whole(value, "number of a drive")
    if number >= len(node.drives):
        raise InputError(f"{node.machine} has NVMe drives 0 to {len(node.drives) - 1}")
    drives = list(node.drives)
    drives[number] = replace(drives[number], **changes)  # type: ignore[arg-type]
    return replace(node, drives=tuple(drives))


def _dead(node: Node, _name: str, value: str) -> Node:
    node = _with_drive(node, value, state="dead")
    name = f"nvme{int(value)}"
    mirrors = tuple(replace(m, lost=m.lost | ({f"{name}n1"} & set(m.members))) for m in node.mirrors)
    return replace(node, mirrors=mirrors).logging(
        f"nvme {name}: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
        f"nvme {name}: Disabling device after reset failure: -19",
    )


def _worn(node: Node, _name: str, value: str) -> Node:
    return _with_drive(node, value, spare=0, threshold=11, used=92, critical=1)


def _media(node: Node, _name: str, value: str) -> Node:
    return _with_drive(node, value, media_errors=14)


def _degraded(node: Node, _name: str, _value: str) -> Node:
    if not node.mirrors:
        raise InputError(f"{node.machine} has no software RAID")
    first = node.mirrors[0]
    mirror = replace(first, lost=first.lost | {first.members[-1]})
    return replace(node, mirrors=(mirror, *node.mirrors[1:]))


FAULTS = (
    Fault("host", "nvme-dead", "the kernel gave up on an NVMe drive", _dead, "NUMBER", "3", found_by=("nvme-drives",)),
    Fault(
        "host", "nvme-worn", "an NVMe drive has no spare blocks left", _worn, "NUMBER", "1", found_by=("drive-health",)
    ),
    Fault(
        "host", "nvme-media-errors", "an NVMe drive has media errors", _media, "NUMBER", "1", found_by=("drive-health",)
    ),
    Fault("host", "raid-degraded", "a member of the mirror of / is gone", _degraded, found_by=("raid",)),
)
