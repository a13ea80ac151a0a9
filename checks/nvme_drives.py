"""Every NVMe drive answers the kernel."""

from collections.abc import Iterator
from typing import Literal

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.host.nvme import NvmeDrive
from gpuops.probes.host.nvme import nvme_drives as probe

_COMING = ("new", "resetting", "connecting")


@check(
    needs=probe,
    uses=("nvme.count",),
    severity="fail",
    tags=("quick", "host"),
    explains=("disk-errors",),
    catches="a drive that the kernel gave up: data sets and checkpoints on it are gone, programs that read it hang",
    fix="dmesg | grep nvme shows why; reseat or replace the drive",
)
def nvme_drives(drives: tuple[NvmeDrive, ...], profile: Profile) -> Iterator[Finding | Unknown | NotApplicable]:
    """Each controller is live, and there are as many as in the profile; one that resets or connects is a warning.

    Source: Linux, drivers/nvme/host/sysfs.c (states); Azure/azurehpc-health-checks, azure_nvme_count.nhc (count).
    """
    count = profile.get("nvme.count")
    if count is not None and len(drives) < count:
        yield Finding(f"{len(drives)} NVMe drives, expected {count}", expected=count, found=len(drives))
    elif not drives:
        yield NotApplicable("the machine has no NVMe drive")
    for drive in drives:
        if not drive.state:
            yield Unknown(f"the kernel does not report the state of {drive.name}")
        elif drive.state != "live":
            part = PartName(drive.name, f"{drive.name} ({drive.model}, serial {drive.serial})")
            severity: Literal["warn"] | None = "warn" if drive.state in _COMING else None
            message = f"the kernel reports it as {drive.state}"
            yield Finding(message, expected="live", found=drive.state, part=part, severity=severity)
