"""Faults of file systems and disks, as the mount table and the kernel log show them."""

from __future__ import annotations

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Fault
from gpuops.lab.model import Disk, Node
from gpuops.lab.tree import mount_table

_SERVER = "10.20.0.9"
_NFS = "96 23 0:61 / /home rw,relatime shared:47 - nfs4 10.20.0.9:/export/home rw,vers=4.2,hard,proto=tcp"


def _data(node: Node) -> Disk:
    """Return the file system for data, or the root if there is none."""
    return next((disk for disk in reversed(node.disks) if disk.mount.startswith(("/scratch", "/raid"))), node.disks[0])


def _listed(node: Node) -> Node:
    """Return the node with its file systems in /etc/fstab."""
    rows = "".join(f"{disk.device} {disk.mount} ext4 defaults 0 2\n" for disk in node.disks)
    return node.with_file(
        "/etc/fstab", f"# /etc/fstab: static file system information.\n{rows}/swap.img none swap sw 0 0\n"
    )


def _read_only(node: Node, _name: str, _value: str) -> Node:
    disk = _data(node)
    lines = mount_table(node).replace(f" {disk.mount} rw,relatime ", f" {disk.mount} ro,relatime ")
    device = disk.device.removeprefix("/dev/")
    return (
        _listed(node)
        .with_file("/proc/self/mountinfo", lines)
        .logging(
            f"EXT4-fs error (device {device}): ext4_journal_check_start:83: comm python3: Detected aborted journal",
            f"EXT4-fs ({device}): Remounting filesystem read-only",
        )
    )


def _was_read_only(node: Node, _name: str, _value: str) -> Node:
    device = _data(node).device.removeprefix("/dev/")
    return _listed(node).logging(f"EXT4-fs ({device}): Remounting filesystem read-only")


def _damaged(node: Node, _name: str, _value: str) -> Node:
    device = _data(node).device.removeprefix("/dev/")
    where = "ext4_lookup:1855: inode #131073: comm python3: iget: checksum invalid"
    return _listed(node).logging(f"EXT4-fs error (device {device}): {where}")


def _not_mounted(node: Node, _name: str, _value: str) -> Node:
    disk = _data(node)
    if disk is node.disks[0]:
        raise InputError(f"{node.machine} has only its root file system")
    rows = [row for row in mount_table(node).splitlines(keepends=True) if f" {disk.mount} " not in row]
    return _listed(node).with_file("/proc/self/mountinfo", "".join(rows))


def _server_silent(node: Node, _name: str, _value: str) -> Node:
    return _serving(node).logging(f"nfs: server {_SERVER} not responding, still trying")


def _server_back(node: Node, _name: str, _value: str) -> Node:
    return _server_silent(node, "", "").logging(f"nfs: server {_SERVER} OK")


def _serving(node: Node) -> Node:
    return node.with_file("/proc/self/mountinfo", f"{mount_table(node)}{_NFS}\n")


def _raid0_failed(node: Node, _name: str, _value: str) -> Node:
    return node.logging(
        "nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
        "md/raid0md1: Disk failure on nvme4n1 detected, failing array.",
        "Buffer I/O error on dev md1, logical block 0, async page read",
    )


def _disk_timeout(node: Node, _name: str, _value: str) -> Node:
    return node.logging("nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller")


FAULTS = (
    Fault("host", "read-only", "a file system became read-only after an error", _read_only, found_by=("mounts",)),
    Fault(
        "host",
        "was-read-only",
        "a file system was read-only, and is writable again",
        _was_read_only,
        found_by=("mounts",),
    ),
    Fault("host", "damaged", "a file system is damaged and stays mounted", _damaged, found_by=("mounts",)),
    Fault("host", "not-mounted", "a file system of /etc/fstab is not mounted", _not_mounted, found_by=("mounts",)),
    Fault("host", "nfs-silent", "an NFS server does not answer", _server_silent, found_by=("mounts",)),
    Fault("host", "nfs-back", "healthy: an NFS server did not answer, and does again", _server_back),
    Fault("host", "raid0-failed", "an array without redundancy lost a disk", _raid0_failed, found_by=("disk-errors",)),
    Fault("host", "disk-timeout", "a disk was reset after a timeout", _disk_timeout, found_by=("disk-errors",)),
)
