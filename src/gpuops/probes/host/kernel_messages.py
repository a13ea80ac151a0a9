"""Kernel messages that no vendor numbers: hung tasks, machine checks, file systems, disks, and the loading of drivers.

``INFO: task dd:1234 blocked for more than 120 seconds.`` is a ``hung-task`` of the subject ``dd``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

MessageKind = Literal[
    "driver-load",
    "nouveau",
    "init-failed",
    "reset-required",
    "off-bus",
    "unsigned-module",
    "hung-task",
    "soft-lockup",
    "hard-lockup",
    "rcu-stall",
    "oops",
    "machine-check",
    "cpu-hot",
    "cpu-cool",
    "link-down",
    "memory-failure",
    "edac",
    "read-only",
    "shut-down",
    "damaged",
    "mounted",
    "server-silent",
    "server-lost",
    "server-back",
    "disk-gone",
    "disk-timeout",
    "raid-failure",
    "io-error",
    "removable-disk",
]


@dataclass(frozen=True, slots=True)
class Message:
    """One message: the ``subject`` is the process, PCI address, device or server that it names; ``line`` is from 1.

    ``seconds`` are since boot, None in logs that contain the time of day instead.
    """

    kind: MessageKind
    subject: str
    text: str
    seconds: float | None = None
    line: int = 0


_ADDRESS = r"(?P<subject>[\da-fA-F]{4,8}:[\da-fA-F]{2}:[\da-fA-F]{2}\.[0-7])"
_NVRM_SAYS = r"NVRM: (?:GPU\d+ |GPU at PCI:\S+ )?(?P<subject>\w+)(?::|\().*"
_PATTERNS: tuple[tuple[str, MessageKind, str], ...] = (
    ("NVRM: loading NVIDIA", "driver-load", r"NVRM: loading NVIDIA (?P<subject>UNIX).*"),
    ("bound to nouveau", "nouveau", rf"NVRM: GPU {_ADDRESS} is already bound to nouveau"),
    ("RmInitAdapter failed", "init-failed", rf"NVRM: GPU {_ADDRESS}: RmInitAdapter failed.*"),
    ("NV_ERR_RESET_REQUIRED", "reset-required", rf"{_NVRM_SAYS}NV_ERR_RESET_REQUIRED.*"),
    ("Assertion failed: Reset req", "reset-required", rf"{_NVRM_SAYS}Assertion failed: Reset required.*"),
    ("fallen off the bus", "off-bus", rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? .*fallen off the bus.*"),
    ("unavailable key", "unsigned-module", r"Loading of (?P<subject>module) with unavailable key is rejected"),
    (
        "not signed with a trusted key",
        "unsigned-module",
        r"(?P<subject>PKCS#7) signature not signed with a trusted key",
    ),
    ("module loading is restricted", "unsigned-module", r"Lockdown: (?P<subject>\S+): unsigned module loading.*"),
    ("blocked for more", "hung-task", r"INFO: task (?P<subject>.{1,64}):\d+ blocked for more than \d+ seconds.*"),
    ("soft lockup", "soft-lockup", r"BUG: soft lockup - CPU#\d+ stuck for \d+s! \[(?P<subject>.{1,64}?):\d+\].*"),
    ("hard LOCKUP", "hard-lockup", r"Watchdog detected hard LOCKUP on cpu (?P<subject>\d+).*"),
    ("self-detected stall", "rcu-stall", r"INFO: (?P<subject>rcu_\w+) self-detected stall on CPU.*"),
    ("detected stalls on", "rcu-stall", r"INFO: (?P<subject>rcu_\w+) detected stalls on CPUs/tasks.*"),
    ("Oops: ", "oops", r"(?P<subject>Oops): .*\[#\d+\].*"),
    ("general protection fault", "oops", r"(?P<subject>general protection fault).*\[#\d+\].*"),
    ("kernel BUG at", "oops", r"(?P<subject>kernel BUG) at .*"),
    ("[Hardware Error]", "machine-check", r"\[Hardware Error\]: (?P<subject>.*)"),
    ("above threshold", "cpu-hot", r"CPU(?P<subject>\d+): (?:Package|Core) temperature (?:is )?above threshold.*"),
    ("temperature/speed normal", "cpu-cool", r"CPU(?P<subject>\d+): (?:Package|Core) temperature/speed normal.*"),
    ("Link Down", "link-down", rf"pcieport {_ADDRESS}: pciehp: Slot\([\w-]+\): Link Down"),
    ("Memory failure: 0x", "memory-failure", r"Memory failure: (?P<subject>0x[\da-f]+): .*"),
    ("EDAC MC", "edac", r"EDAC MC\d+: \d+ (?P<subject>[UC]E) .*"),
    ("filesystem read-only", "read-only", r"\w+-fs \((?P<subject>[^()]+)\): Remounting filesystem read-only"),
    ("XFS (", "shut-down", r"XFS \((?P<subject>[^()]+)\): .*(?:[Ss]hutting down|has been shut down).*"),
    ("-fs error (device", "damaged", r"\w+-fs error \(device (?P<subject>[^()]+)\): .*"),
    ("XFS (", "damaged", r"XFS \((?P<subject>[^()]+)\): (?:Metadata (?:corruption|CRC error)|Corruption) detected.*"),
    ("XFS (", "damaged", r"XFS \((?P<subject>[^()]+)\): Unmount and run xfs_repair.*"),
    ("XFS (", "mounted", r"XFS \((?P<subject>[^()]+)\): (?:Mounting V|Ending clean mount|Unmounting Filesystem).*"),
    ("mounted filesystem", "mounted", r"EXT4-fs \((?P<subject>[^()]+)\): mounted filesystem.*"),
    ("nfs: server", "server-silent", r"nfs: server (?P<subject>\S+) not responding, still trying"),
    ("nfs: server", "server-lost", r"nfs: server (?P<subject>\S+) not responding, timed out"),
    ("nfs: server", "server-back", r"nfs: server (?P<subject>\S+) OK"),
    ("nvme nvme", "disk-gone", r"nvme (?P<subject>nvme\d+): (?:Disabling device|Removing after probe failure).*"),
    ("no available path", "disk-gone", r"block (?P<subject>nvme\w+): no available path - failing I/O"),
    ("nvme nvme", "disk-timeout", r"nvme (?P<subject>nvme\d+): .*timeout, (?:reset controller|aborting|disable c).*"),
    ("md/raid", "raid-failure", r"md/(?P<level>raid\d*):?(?P<subject>\w+): Disk failure on .*"),
    ("critical medium error", "io-error", r"critical medium error, dev (?P<subject>[\w-]+), .*"),
    ("critical target error", "io-error", r"critical target error, dev (?P<subject>[\w-]+), .*"),
    ("Unrecovered Read Error", "io-error", r"(?P<subject>nvme\d+n\d+): .*Unrecovered Read Error.*"),
    (": Medium Error", "io-error", r"\[(?P<subject>sd[a-z]+)\] .*Sense Key : Medium Error.*"),
    (": I/O Cmd(", "io-error", r"(?P<subject>nvme\d+n\d+): I/O Cmd\(.*"),
    ("removable disk", "removable-disk", r"\[(?P<subject>sd[a-z]+)\] Attached SCSI removable disk"),
    ("I/O error", "io-error", r"I/O error,? (?:on )?dev(?:ice)? (?P<subject>[\w-]+), .*"),
)
_RULES = tuple((keyword, kind, re.compile(pattern, re.ASCII)) for keyword, kind, pattern in _PATTERNS)
"""A keyword, which rules a line out before any pattern is tried; the kind; and the pattern."""
_PROBE = re.compile(rf"NVRM: The NVIDIA GPU {_ADDRESS}", re.ASCII)
_PROBE_FAILED = "NVRM: fallen off the bus and is not responding"
_PROBE_LINES = 3
_SERVER_KINDS = ("server-silent", "server-lost", "server-back")
KEYWORDS = (*dict.fromkeys(keyword for keyword, _, _ in _RULES), "NVRM: The NVIDIA GPU ")
"""Every line with an event of this module contains one of them."""


def find_message(line: str, number: int, seconds: float | None) -> Message | None:
    """Return the message in ``line``, None if it is not one of those that are looked for."""
    for keyword, kind, pattern in _RULES:
        match = pattern.search(line) if keyword in line else None
        if match:
            return Message(kind, match["subject"], match[0], seconds, number)
    return None


def find_failed_probes(lines: list[tuple[int, str]]) -> Iterator[Message]:
    """Yield the GPUs that were off the bus when the driver was loaded: three lines, of which the first has the address.

    ``lines`` are pairs of number and text, in order.
    """
    address, since = "", 0
    for number, line in lines:
        if named := _PROBE.search(line):
            address, since = named["subject"], number
        elif _PROBE_FAILED in line and address and number - since < _PROBE_LINES:
            yield Message("off-bus", address, "fallen off the bus and is not responding to commands", None, number)
            address = ""


def unanswered_servers(messages: Iterable[Message]) -> dict[str, Message]:
    """Return the NFS servers that have not answered since their last message, with that message."""
    last = {message.subject: message for message in messages if message.kind in _SERVER_KINDS}
    return {server: message for server, message in last.items() if message.kind != "server-back"}
