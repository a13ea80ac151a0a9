"""NVMe drives: their state in the kernel, and their own health log from ``nvme smart-log`` or ``smartctl``.

``/sys/class/nvme/nvme0/state`` is ``live`` on a drive that works. ``"percent_used": 3`` of ``nvme`` is smartctl's
``"percentage_used": 3``: the drive has used 3 percent of its rated endurance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed, Files, read_files

_FIELD = re.compile(r"/sys/class/nvme/(nvme\d{1,4})/(\w+)", re.ASCII)
_HEADING = re.compile(r"^-- (nvme\d{1,4})$", re.ASCII | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NvmeDrive:
    """One NVMe controller; ``state`` is the kernel's word: new, live, resetting, connecting, deleting, dead."""

    name: str
    state: str
    model: str = ""
    serial: str = ""
    firmware: str = ""


@dataclass(frozen=True, slots=True)
class DriveHealth:
    """Health log of one drive; spare and used are percent. ``critical_warning`` is a bit mask, 0 if healthy."""

    name: str
    critical_warning: int
    spare: int
    spare_threshold: int
    used: int
    media_errors: int


def parse_drives(text: str) -> tuple[NvmeDrive, ...]:
    """Return the drives in the files of `nvme_drives`, by number; empty if there are none."""
    fields: dict[str, dict[str, str]] = {}
    for path, content in read_files(text).items():
        match = _FIELD.fullmatch(path)
        if match:
            fields.setdefault(match[1], {})[match[2]] = content.strip()
    return tuple(
        NvmeDrive(name, own.get("state", ""), own.get("model", ""), own.get("serial", ""), own.get("firmware_rev", ""))
        for name, own in sorted(fields.items(), key=lambda each: int(each[0][4:]))
    )


def read_health(answer: Completed) -> Mapping[str, DriveHealth | Unknown] | Unknown:
    """Return each drive's health by name. A drive that gave no log is unknown by itself."""
    refused = "ermission denied" in answer.err
    parts = _HEADING.split(answer.out)[1:]
    health = {name: _health(name, text, answer) for name, text in zip(parts[::2], parts[1::2], strict=True)}
    if answer.truncated or (health and all(isinstance(each, Unknown) for each in health.values())):
        why = "neither nvme nor smartctl is installed" if answer.missing else answer.last_line() or "no health log"
        return Unknown(f"no NVMe drive gave its health log: {why}", needs_root=refused)
    return health or Unknown("the node lists no NVMe drive")


def _health(name: str, text: str, answer: Completed) -> DriveHealth | Unknown:
    try:
        document = json.loads(text)
        log = document.get("nvme_smart_health_information_log", document)
        return DriveHealth(
            name,
            critical_warning=_number(log["critical_warning"]),
            spare=_number(log.get("available_spare", log.get("avail_spare"))),
            spare_threshold=_number(log.get("available_spare_threshold", log.get("spare_thresh"))),
            used=_number(log.get("percentage_used", log.get("percent_used"))),
            media_errors=_number(log["media_errors"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        lines = [line for line in answer.err.splitlines() if name in line]
        return Unknown(f"{name} gave no health log: {lines[-1][:120] if lines else 'unreadable answer'}")


def _number(value: Any) -> int:
    """Return a count; newer nvme-cli prints masks as maps with a ``value``, and large counts as text."""
    return int(value["value"] if isinstance(value, dict) else value)


_FILES = ("state", "model", "serial", "firmware_rev")
# a drive whose controller hangs does not keep the others from answering
_SCRIPT = (
    "t='smartctl -j -A'; command -v nvme >/dev/null && t='nvme smart-log -o json'; rc=0; "
    'for d in $(ls /sys/class/nvme); do echo "-- $d"; timeout 10 $t /dev/$d || rc=$?; done; exit $rc'
)

nvme_drives: Probe[tuple[NvmeDrive, ...]] = Probe(
    "nvme_drives",
    Files(tuple(f"/sys/class/nvme/nvme*/{name}" for name in _FILES), limit_bytes=256),
    lambda answer: parse_drives(answer.out),
)
"""NVMe drives as the kernel sees them; needs no root, and cannot hang."""

nvme_health: Probe[Mapping[str, DriveHealth | Unknown]] = Probe(
    "nvme_health",
    Command(("sh", "-c", _SCRIPT), timeout_seconds=60, become="if-refused"),
    read_health,
    accepts=None,  # smartctl's exit code is a bit mask, and one drive may fail
    cost="slow",
)
"""Health log of each NVMe drive; a controller that hangs costs ten seconds."""
