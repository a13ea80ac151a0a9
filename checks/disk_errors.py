"""The kernel reported no error of a disk."""

import re
from collections.abc import Iterator, Sequence

from gpuops import Finding, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, kernel_log
from gpuops.probes.host.kernel_messages import Message, MessageKind
from gpuops.probes.host.md_raid import Array, md_raid
from gpuops.probes.host.nvme import NvmeDrive, nvme_drives

_KINDS: tuple[MessageKind, ...] = ("disk-gone", "raid-failure", "disk-timeout", "io-error")
"""The most severe first."""
_CONTROLLER = re.compile(r"nvme\d+", re.ASCII)
_MEMBER = re.compile(r"Disk failure on ([\w-]+)", re.ASCII)
_NO_DISKS = re.compile(r"(?:fd|sr|loop|ram|nbd|zram)\d+", re.ASCII)
_LAYERS = re.compile(r"(?:dm-|md)\d+", re.ASCII)
_NO_REDUNDANCY = "failing array"  # the kernel's words for a raid0
_FIXES = {
    "disk-gone": "reseat or replace the disk; a file system on it is lost until then",
    "raid-failure": "replace the disk and add the new one to the array; a raid0 has lost its data",
    "disk-timeout": "look at the disk's health (nvme smart-log, smartctl -x); replace it if it repeats",
    "io-error": "look at the disk's health (nvme smart-log, smartctl -x); replace it if it repeats",
}


@check(
    needs=(kernel_log, nvme_drives, md_raid),
    tolerates=(nvme_drives, md_raid),
    severity="fail",
    tags=("quick", "host"),
    catches="a disk that fails: file systems stop or become read-only, and jobs with them",
    fix="look at the disk's health (nvme smart-log, smartctl -x), and replace it",
)
def disk_errors(
    log: KernelLog, drives: tuple[NvmeDrive, ...] | Unknown, arrays: tuple[Array, ...] | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown]:
    """A disk that the kernel gave up on, or that an array lost, fails. Timeouts, read errors and write errors warn.

    A drive that works again only warns, and so does an array whose present state is known. Errors of the layers above
    disks (md, dm) count only if no disk has an error. Removable disks do not count: they are USB sticks, or
    images that a BMC mounts. Source: leptonai/gpud, disk component, matcher of kernel messages.
    """
    removable = {message.subject for message in log.of_kind("removable-disk")}
    by_disk: dict[str, list[Message]] = {}
    for message in log.of_kind(*_KINDS):
        disk = _disk(message)
        if not _NO_DISKS.match(disk) and disk not in removable:
            by_disk.setdefault(disk, []).append(message)
    live = set() if isinstance(drives, Unknown) else {drive.name for drive in drives if drive.state == "live"}
    below = [disk for disk in by_disk if not _LAYERS.fullmatch(disk)]
    for disk in below or by_disk:
        yield _finding(disk, by_disk[disk], is_live=disk in live, are_arrays_known=not isinstance(arrays, Unknown))
    if not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older disk errors are unknown")


def _disk(message: Message) -> str:
    """Return the disk that a message is about: nvme4 of nvme4n1p1, and of an array the member that failed."""
    member = _MEMBER.search(message.text)
    name = member[1] if member else message.subject
    controller = _CONTROLLER.match(name)
    return controller[0] if controller else name.rstrip("0123456789") if name.startswith("sd") else name


def _finding(disk: str, messages: Sequence[Message], *, is_live: bool, are_arrays_known: bool) -> Finding:
    gravest = min(messages, key=lambda message: _KINDS.index(message.kind))
    times = f", {len(messages)} errors" if len(messages) > 1 else ""
    is_lost = {
        "disk-gone": not is_live,
        "raid-failure": not are_arrays_known or _NO_REDUNDANCY in gravest.text,
    }.get(gravest.kind, False)
    return Finding(
        f"{gravest.text}{times}{'; it works again' if is_live and gravest.kind == 'disk-gone' else ''}",
        fix=_FIXES[gravest.kind],
        part=disk,
        severity=None if is_lost else "warn",
        code=gravest.kind,
    )
