"""Host faults: software, clock, disk, and the host's behaviour on the network."""

from __future__ import annotations

import re
from dataclasses import replace

from gpuops.errors import InputError
from gpuops.lab.faults.fault import Change, Fault, number, percent, whole
from gpuops.lab.faults.gpu import working
from gpuops.lab.model import Node, Service, address


def _driver_skew(node: Node, _name: str, value: str) -> Node:
    if not re.fullmatch(r"\d{3}\.\d{1,3}(\.\d{1,3})?", value):
        raise InputError(f'"{value}" is not a driver version such as 570.172.08')
    manager = value if node.driver.fabric_manager else None
    return replace(node, driver=replace(node.driver, version=value, userspace=value, fabric_manager=manager))


def _version_mismatch(node: Node, _name: str, _value: str) -> Node:
    branch, minor, *rest = node.driver.version.split(".")
    newer = ".".join([branch, str(int(minor) + 21), *rest])
    manager = newer if node.driver.fabric_manager else None
    return replace(node, driver=replace(node.driver, userspace=newer, fabric_manager=manager))


def _fabricmanager_version(node: Node, _name: str, value: str) -> Node:
    _with_fabric_manager(node)
    return replace(node, driver=replace(node.driver, fabric_manager=value))


def _fabricmanager_down(node: Node, _name: str, _value: str) -> Node:
    _with_fabric_manager(node)
    failed = Service("failed", "failed", "enabled")
    return replace(node, services={**node.services, "nvidia-fabricmanager": failed})


def _with_fabric_manager(node: Node) -> None:
    if node.driver.fabric_manager is None:
        raise InputError(f"{node.machine} has no fabric manager")


def _slurmd_failed(node: Node, _name: str, _value: str) -> Node:
    if "slurmd" not in node.services:
        raise InputError(f"{node.machine} has no slurmd")
    return replace(node, services={**node.services, "slurmd": Service("failed", "failed", "enabled")})


def _disk_full(node: Node, _name: str, _value: str) -> Node:
    disks = tuple(replace(d, used=0.96) if d.mount == "/" else d for d in node.disks)
    return replace(node, disks=disks)


def _cgroup(node: Node, _name: str, value: str) -> Node:
    seen = whole(value, "number of GPUs", lowest=1)
    if seen > len(node.gpus):
        raise InputError(f"{node.machine} has {len(node.gpus)} GPUs, not {seen}")
    return replace(node, visible_gpus=seen)


def _busy(node: Node, _name: str, _value: str) -> Node:
    for gpu in node.gpus:
        node = node.with_gpu(gpu.index, **working(gpu))
    return node


def _behaving(**changes: object) -> Change:
    return lambda node, _name, _value: replace(node, behaviour=replace(node.behaviour, **changes))  # type: ignore[arg-type]


def _taking_seconds(field: str, *, lowest: float = 0) -> Change:
    def change(node: Node, _name: str, value: str) -> Node:
        seconds = number(value, "number of seconds", lowest=lowest)
        return replace(node, behaviour=replace(node.behaviour, **{field: seconds}))  # type: ignore[arg-type]

    return change


def _slow_multicast(node: Node, _name: str, value: str) -> Node:
    return replace(node, behaviour=replace(node.behaviour, multicast_slow_percent=percent(value)))


def _sharp(node: Node, _name: str, value: str) -> Node:
    if value not in ("works", "fails"):
        raise InputError(f'"{value}" is not a state of SHARP; use works or fails')
    return replace(node, behaviour=replace(node.behaviour, sharp=value))


def _roce(node: Node, _name: str, _value: str) -> Node:
    nics = (replace(nic, link_layer="Ethernet") if nic.rail is not None else nic for nic in node.nics)
    return replace(node, nics=tuple(nics))


def _apt_fails(node: Node, _name: str, value: str) -> Node:
    return replace(node, behaviour=replace(node.behaviour, failing_package=value))


def _sudo_password(node: Node, _name: str, value: str) -> Node:
    return replace(node, behaviour=replace(node.behaviour, sudo=value))


def _sxid(node: Node, _name: str, value: str) -> Node:
    if node.switches is None:
        raise InputError(f"{node.machine} has no NVSwitch")
    number, where = whole(value, "SXid number", lowest=1), address(node.switches.at[0])
    severity, text = _SXIDS.get(number, ("Non-fatal", "Link 03 unknown error (First)"))
    return node.logging(f"nvidia-nvswitch0: SXid (PCI:{where}): {number:05}, {severity}, {text}")


_SXIDS = {
    12028: ("Non-fatal", "Link 32 egress non-posted PRIV error (First)"),
    20001: ("Non-fatal", "Link 30 TX Replay Error"),
    20034: ("Fatal", "Link 30 LTSSM Fault Up"),
    22003: ("Fatal", "PRI WRITE SYS error (First)"),
    12020: ("Fatal", "Link 40 egress sequence ID error (First)"),
}

FAULTS = (
    Fault(
        "host",
        "driver-skew",
        "another driver version than its peers",
        _driver_skew,
        takes="VERSION",
        found_by=("driver-agrees",),
    ),
    Fault(
        "host",
        "version-mismatch",
        "the libraries were updated, and the module not reloaded",
        _version_mismatch,
        found_by=("driver-loaded",),
    ),
    Fault(
        "host",
        "fabricmanager-version",
        "a fabric manager of another version",
        _fabricmanager_version,
        "VERSION",
        found_by=("fabric-manager",),
    ),
    Fault("host", "fabricmanager-down", "the fabric manager failed", _fabricmanager_down, found_by=("fabric-manager",)),
    Fault("host", "sxid", "an SXid of its first NVSwitch in the kernel log", _sxid, takes="NUMBER", found_by=("sxid",)),
    Fault("host", "slurmd-failed", "the scheduler's daemon failed", _slurmd_failed, found_by=("failed-services",)),
    Fault("host", "disk-full", "no space left on /", _disk_full, found_by=("disk-space",)),
    Fault("host", "cgroup", "a session can open only this many GPUs", _cgroup, takes="GPUS"),
    Fault("host", "busy", "a job uses all GPUs", _busy),
    Fault(
        "host",
        "clock-skew",
        "the clock is off",
        _taking_seconds("clock_skew_seconds", lowest=-1e9),
        "SECONDS",
        found_by=("clock",),
    ),
    Fault("host", "slow-driver", "each nvidia-smi takes this long", _taking_seconds("driver_delay_seconds"), "SECONDS"),
    Fault(
        "host",
        "ranks-hang",
        "its ranks never join an all-reduce",
        _behaving(ranks_arrive=False),
        found_by=("all-reduce-bandwidth",),
    ),
    Fault(
        "host",
        "no-multicast",
        "its NVSwitches offer no multicast, so no NVLink SHARP",
        _behaving(multicast=False),
        found_by=("all-reduce-bandwidth",),
    ),
    Fault(
        "host",
        "slow-multicast",
        "NVLink SHARP is slower than it should be",
        _slow_multicast,
        "PERCENT",
        "35",
        found_by=("all-reduce-bandwidth",),
    ),
    Fault("host", "sharp", "NCCL has a SHARP plugin; the switches take part or refuse", _sharp, "STATE", "works"),
    Fault("host", "roce", "its rails are Ethernet, all with the same RoCE settings", _roce),
    Fault("host", "apt-fails", "the installation of this package fails", _apt_fails, takes="PACKAGE"),
    Fault("host", "dpkg-locked", "another program holds dpkg's lock and never ends", _behaving(dpkg_locked=True)),
    Fault("host", "no-repository", "package repositories are unreachable", _behaving(repositories=False)),
    Fault("host", "stays-down", "it does not come back from a reboot", _behaving(comes_back=False)),
    Fault(
        "host",
        "bug-report-hangs",
        "nvidia-bug-report.sh never ends, except with --safe-mode",
        _behaving(bug_report_hangs=True),
    ),
    Fault("host", "refuse", "connections are refused", _behaving(connection="refuse")),
    Fault("host", "hang", "TCP is accepted, sshd is silent", _behaving(connection="hang")),
    Fault("host", "wrong-key", "another host key than known_hosts has", _behaving(connection="wrong-key")),
    Fault(
        "host", "slow-banner", "sshd sends its banner late", _taking_seconds("banner_delay_seconds"), "SECONDS", "20"
    ),
    Fault("host", "exec-hang", "commands never answer", _behaving(answer="never")),
    Fault("host", "die-mid-answer", "the connection breaks in the middle of an answer", _behaving(answer="half")),
    Fault("host", "noisy-shell", "the login shell prints before the command", _behaving(login_shell="noisy")),
    Fault("host", "csh", "the login shell is a csh", _behaving(login_shell="csh")),
    Fault("host", "no-python", "no Python is installed", _behaving(python=False)),
    Fault("host", "no-sudo", "sudo is not allowed", _behaving(sudo="none")),
    Fault("host", "sudo-password", "sudo asks for this password", _sudo_password, takes="PASSWORD"),
)
