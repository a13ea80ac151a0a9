"""No NVMe drive reports that it is worn out or failing."""

from collections.abc import Iterator, Mapping

from gpuops import Finding, NotApplicable, PartName, Profile, Unknown, check
from gpuops.probes.host.nvme import DriveHealth, NvmeDrive, nvme_drives, nvme_health
from gpuops.probes.host.system import System, system

WORN_PERCENT = 80
USED_UP_PERCENT = 100
_WARNINGS = {
    1: "spare blocks below the threshold",
    2: "temperature beyond its threshold",
    4: "reliability degraded by errors",
    8: "read-only",
    16: "backup of volatile memory failed",
    32: "persistent memory unreliable",
}


@check(
    needs=(nvme_drives, nvme_health, system),
    tolerates=(nvme_health, system),
    severity="fail",
    tags=("standard", "host"),
    catches="a drive that is about to become read-only or to lose data",
    fix="nvme smart-log /dev/NAME shows more; copy the data and replace the drive",
)
def drive_health(
    drives: tuple[NvmeDrive, ...],
    health: Mapping[str, DriveHealth | Unknown] | Unknown,
    machine: System | Unknown,
    _profile: Profile,
) -> Iterator[Finding | Unknown | NotApplicable]:
    """The check judges the fields of the health log and ignores the drive's own one-word verdict.

    A drive fails if it has a critical warning, fewer spare blocks than its threshold, or more than 100 percent of its
    endurance used. More than 80 percent and media errors warn. The number of error log entries is ignored, because it
    grows on good drives. Disks of virtual machines have no health log. Source: NVM Express Base Specification, SMART /
    Health Information; facebookresearch/gcm, check_blockdev.py (limits).
    """
    if not drives:
        yield NotApplicable("the machine has no NVMe drive")
        return
    guest = not isinstance(machine, Unknown) and machine.virtual
    if isinstance(health, Unknown):
        yield NotApplicable("the disks of a guest have no health log") if guest and not health.needs_root else health
        return
    for drive in drives:
        log = health.get(drive.name, Unknown(f"{drive.name} was not queried for its health log"))
        if not isinstance(log, Unknown):
            yield from _judged(drive, log)
        elif not guest:
            yield log


def _judged(drive: NvmeDrive, log: DriveHealth) -> Iterator[Finding]:
    failing = [text for bit, text in _WARNINGS.items() if log.critical_warning & bit]
    if log.critical_warning and not failing:
        failing = [f"critical warning {log.critical_warning:#x}"]
    if log.spare < log.spare_threshold:
        failing = [f"{log.spare} % spare blocks left, its threshold is {log.spare_threshold} %", *failing]
    if log.used > USED_UP_PERCENT:
        failing.append(f"{log.used} % of its endurance used")
    worn = [f"{log.used} % of its endurance used"] if WORN_PERCENT < log.used <= USED_UP_PERCENT else []
    worn += [f"{log.media_errors} media errors"] if log.media_errors else []
    if failing or worn:
        part = PartName(drive.name, f"{drive.name} ({drive.model}, serial {drive.serial})")
        fix = f"nvme smart-log /dev/{drive.name} shows more; copy the data and replace the drive"
        yield Finding("; ".join([*failing, *worn]), part=part, severity=None if failing else "warn", fix=fix)
