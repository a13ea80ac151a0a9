"""Every software RAID array has all its members."""

from collections.abc import Iterator
from typing import Literal

from gpuops import Finding, NotApplicable, Profile, Unknown, check
from gpuops.probes.host.md_raid import Array, md_raid

_FIX = "mdadm --detail /dev/NAME shows the missing member; replace the disk, then mdadm /dev/NAME --add DISK"


@check(
    needs=md_raid,
    severity="fail",
    tags=("quick", "host"),
    catches="a disk that was lost unnoticed: the next one takes the data with it; a raid0 is lost already",
    fix=_FIX,
)
def raid(arrays: tuple[Array, ...], _profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """An array that lacks a member fails; an array that is being rebuilt warns.

    A check or a resync of a whole array is normal, and so is the inactive container of a firmware RAID. Source: Linux,
    Documentation/admin-guide/md.rst and drivers/md/md.c (/proc/mdstat).
    """
    if not arrays:
        yield NotApplicable("the machine has no software RAID")
    for array in arrays:
        yield from _judged(array)


def _judged(array: Array) -> Iterator[Finding]:
    if array.external and array.state == "inactive":
        return
    fix = _FIX.replace("NAME", array.name)
    missing = (array.wanted or 0) - (array.working or 0)
    if array.state != "active" or (array.failed and array.wanted is None):
        message = f"{array.level or 'the array'} is {'dead' if array.failed else array.state}"
        yield Finding(message, expected="active", found=array.state, fix=fix, part=array.name)
    elif missing > 0:
        rebuilt = array.action == "recovery"
        doing = ", a spare is being rebuilt" if rebuilt else ""
        message = f"{array.level} has {array.working} of {array.wanted} members{doing}"
        severity: Literal["warn"] | None = "warn" if rebuilt else None
        yield Finding(message, expected=array.wanted, found=array.working, fix=fix, part=array.name, severity=severity)
    elif array.failed:
        message = f"{', '.join(array.failed)} failed, and a spare took its place"
        found = ", ".join(array.failed)
        yield Finding(message, expected="none", found=found, fix=fix, part=array.name, severity="warn")
