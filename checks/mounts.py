"""File systems are mounted as /etc/fstab lists them, and none has stopped."""

from collections.abc import Iterator

from gpuops import Finding, PartName, Profile, Unknown, check
from gpuops.probes.host.kernel_log import KernelLog, kernel_log
from gpuops.probes.host.kernel_messages import Message, unanswered_servers
from gpuops.probes.host.mounts import Mount, Mounts, TableEntry
from gpuops.probes.host.mounts import mounts as mounts_probe
from gpuops.probes.host.uptime import uptime

_HOUR_SECONDS = 3600
_NOT_AT_BOOT = frozenset({"noauto", "x-systemd.automount", "user", "users"})
_MAY_BE_ABSENT = frozenset({"nofail"})
_NO_FILES = frozenset({"swap", "proc", "sysfs", "devpts", "tmpfs", "cgroup", "cgroup2", "autofs", "none"})
_READ_ONLY_BY_NATURE = frozenset({"squashfs", "iso9660", "udf", "erofs", "cramfs", "overlay"})
_REPAIR = "end what uses it, unmount it, repair it (fsck, xfs_repair), and look at its disk before mounting it again"


@check(
    needs=(mounts_probe, kernel_log, uptime),
    tolerates=(kernel_log, uptime),
    severity="fail",
    tags=("quick", "host"),
    catches="data that is missing, cannot be written, or whose server is gone: jobs fail to start, or hang",
    fix="mount it (mount -a), and look at its disk or server if that fails",
)
def mounts(
    known: Mounts, log: KernelLog | Unknown, seconds: float | Unknown, _profile: Profile
) -> Iterator[Finding | Unknown]:
    """The mount table decides; a fault that is in the log but no longer in the table only warns.

    An NFS server that did not answer fails until the log says that it answers again. For soft mounts, whose requests
    time out, the log may never say so; after an hour, this only warns. A mounted file system in which the kernel found
    damage warns, even if it still works. Sources: fstab(5), proc_pid_mountinfo(5); leptonai/gpud, NFS component;
    kubernetes/node-problem-detector issue 474 (a flag of the log alone never clears); ext4(5), errors=continue; Linux
    kernel, fs/ext4/super.c (__ext4_error) and fs/xfs/xfs_error.c (xfs_corruption_error).
    """
    for entry in known.table:
        yield from _judge_entry(entry, known)
    if isinstance(log, Unknown):
        yield log
        return
    yield from _read_only(known, log)
    yield from _shut_down(known, log)
    yield from _damaged(known, log)
    now = None if isinstance(seconds, Unknown) else seconds
    for server, message in unanswered_servers(log.messages).items():
        yield from _judge_server(server, message, known, now)
    if not log.reaches_boot:
        yield Unknown("the kernel log does not reach back to boot, so older errors of file systems are unknown")


def _part(path: str, source: str) -> PartName:
    return PartName(path, f"{path} ({source})")


def _judge_entry(entry: TableEntry, known: Mounts) -> Iterator[Finding]:
    """Yield what /etc/fstab lists and the kernel does not show, or shows as read-only."""
    if entry.kind in _NO_FILES or not entry.path.startswith("/") or entry.options & _NOT_AT_BOOT:
        return
    mount = known.at(entry.path.rstrip("/") or "/")
    if mount is None:
        is_optional = bool(entry.options & _MAY_BE_ABSENT)
        part = _part(entry.path, entry.source)
        yield Finding(
            "is in /etc/fstab, but not mounted", part=part, severity="warn" if is_optional else None, code="missing"
        )
    elif mount.is_read_only and "ro" not in entry.options and mount.kind not in _READ_ONLY_BY_NATURE:
        yield _is_read_only(mount, "; /etc/fstab says rw")


def _is_read_only(mount: Mount, why: str) -> Finding:
    message = f"is read-only{why}"
    return Finding(message, expected="rw", found="ro", fix=_REPAIR, part=_part(mount.path, mount.source), code="ro")


def _read_only(known: Mounts, log: KernelLog) -> Iterator[Finding]:
    """Yield the file systems that the kernel made read-only, also if they are writable again."""
    told = {entry.path for entry in known.table if "ro" not in entry.options}
    for device in dict.fromkeys(message.subject for message in log.of_kind("read-only")):
        on = _mounted_from(device, known)
        still = [mount for mount in on if mount.is_read_only]
        if still and not any(mount.path in told for mount in still):
            yield _is_read_only(still[0], ": the kernel made it so after an error")
        elif not still:
            part = _part(on[0].path, on[0].source) if on else PartName(device, device)
            yield Finding(
                "was read-only after an error", fix="look at its disk", part=part, severity="warn", code="was"
            )


def _shut_down(known: Mounts, log: KernelLog) -> Iterator[Finding]:
    """Yield the file systems that stopped after an error: the mount table does not show that."""
    last = {message.subject: message for message in log.of_kind("shut-down", "mounted")}
    stopped = dict.fromkeys(message.subject for message in log.of_kind("shut-down"))
    for device in stopped:
        on = _mounted_from(device, known)
        part = _part(on[0].path, on[0].source) if on else PartName(device, device)
        if last[device].kind == "shut-down" and on:
            yield Finding(f"has shut down: {last[device].text}", fix=_REPAIR, part=part, code="shut-down")
        else:
            yield Finding(
                "had shut down after an error", fix="look at its disk", part=part, severity="warn", code="was"
            )


def _damaged(known: Mounts, log: KernelLog) -> Iterator[Finding]:
    """Yield the mounted file systems that the kernel found damaged, but did not stop; others are reported above."""
    stopped = {message.subject for message in log.of_kind("read-only", "shut-down")}
    last = {message.subject: message for message in log.of_kind("damaged", "mounted")}
    for device, message in last.items():
        on = _mounted_from(device, known)
        if message.kind == "damaged" and on and device not in stopped:
            part = _part(on[0].path, on[0].source)
            yield Finding(f"is damaged: {message.text}", fix=_REPAIR, part=part, severity="warn", code="damaged")


def _mounted_from(device: str, known: Mounts) -> list[Mount]:
    """Return the mounts of a ``device`` as the kernel names it: md0, sda1, dm-3."""
    minor = device.removeprefix("dm-")
    mapped = [m for m in known.mounted if m.source.startswith("/dev/mapper/") and m.device.endswith(f":{minor}")]
    named = [m for m in known.mounted if m.source == f"/dev/{device}"]
    return named or (mapped if minor != device else [])


def _judge_server(server: str, message: Message, known: Mounts, now: float | None) -> Iterator[Finding]:
    on = [mount for mount in known.mounted if mount.kind.startswith("nfs") and mount.source.startswith(f"{server}:")]
    if not on:
        return
    age = now - message.seconds if now is not None and message.seconds is not None else 0.0
    is_old = message.kind == "server-lost" and age > _HOUR_SECONDS
    paths = ", ".join(dict.fromkeys(mount.path for mount in on))
    yield Finding(
        f"{server} {'did' if is_old else 'does'} not answer; it serves {paths}",
        fix="look at the server and the network to it; reboot the node if its tasks still hang after that",
        part=PartName(on[0].path, f"{on[0].path} ({on[0].source})"),
        severity="warn" if is_old else None,
        code="server",
    )
