"""No local file system is nearly full."""

from collections.abc import Iterator

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.probes.host.disks import Filesystem, disks

WARN_PERCENT = 90
FULL_PERCENT = 95


@check(
    needs=disks,
    severity="fail",
    tags=("quick", "host"),
    catches="a full disk: checkpoints, logs, sockets and package updates fail, often without a clear error",
    fix="remove old checkpoints, container images and logs (du -xh --max-depth=2 / | sort -h), or enlarge the disk",
)
def disk_space(filesystems: tuple[Filesystem | Unknown, ...], _profile: Profile) -> Iterator[Finding | Unknown]:
    """90 percent of use is a warning, 95 percent a failure; memory and read-only images do not count.

    Source: imbue-ai/cluster-health (95 percent used fails); leptonai/gpud, disk component (less than 10 percent free is
    degraded).
    """
    yield from (row for row in filesystems if isinstance(row, Unknown))
    rows = [row for row in filesystems if isinstance(row, Filesystem)]
    # a disk may be mounted in many places; df lists the main one first
    real = {fs.device: fs for fs in reversed(rows) if not fs.is_pseudo and not fs.device.startswith("/dev/sr")}
    if not real:
        yield Unknown("df lists no disk of this machine")
    for fs in real.values():
        if fs.used_percent < WARN_PERCENT:
            continue
        free_gib = fs.available_kib / 1024**2
        yield Finding(
            f"{fs.mount} is {fs.used_percent:.0f} % full, {free_gib:.1f} GiB left",
            expected=f"below {WARN_PERCENT}",
            found=round(fs.used_percent),
            unit="%",
            part=PartName(fs.mount, f"{fs.mount} ({fs.device})"),
            severity=None if fs.used_percent >= FULL_PERCENT else "warn",
        )
