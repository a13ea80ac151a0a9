"""The parts of a node that have a serial number and may move to another node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gpuops.facts import Facts
from gpuops.probes.host.nvme import nvme_drives
from gpuops.probes.network.ib import ib_ports
from gpuops.probes.network.transceivers import transceivers
from gpuops.probes.nvidia.gpus import gpus
from gpuops.probing import Probe, Unknown
from gpuops.store.records import CABLE, SeenPart

PROBES: tuple[Probe[Any], ...] = (gpus, ib_ports, nvme_drives, transceivers)
"""What parts are read from."""
_WORDS = re.compile(
    r"\W*(?:n/?a|none|null|unknown|default( string)?|system serial number|serial( number)?"
    r"|not (specified|available|applicable|present)|to be filled by o\.?e\.?m\.?)\W*",
    re.IGNORECASE,
)


def parts_of(facts: Facts) -> tuple[SeenPart, ...]:
    """Return GPUs by serial number, or UUID if they have none, HCAs by GUID, drives and cables by serial number.

    Numbers that stand for none are left out. Of the names of one drive, only the first counts.
    """
    found = [part for part in _parts(facts) if not is_placeholder(part.serial)]
    first = {(part.kind, part.serial): part for part in reversed(found)}
    return tuple(part for part in found if first[part.kind, part.serial] is part)


def is_placeholder(serial: str) -> bool:
    """Return True if a serial number is none: empty, one character again and again, or words such as ``N/A``."""
    letters = {letter for letter in serial.lower() if letter.isalnum()}
    return len(letters) < 2 or _WORDS.fullmatch(serial.strip()) is not None


def _parts(facts: Facts) -> Iterator[SeenPart]:
    listed, ports, drives = facts[gpus], facts[ib_ports], facts[nvme_drives]
    for gpu in () if isinstance(listed, Unknown) else listed:
        serial = gpu.serial if gpu.serial and not is_placeholder(gpu.serial) else gpu.uuid
        if serial:
            yield SeenPart("gpu", gpu.subject, serial, gpu.name or "")
    for port in () if isinstance(ports, Unknown) else ports:
        if port.guid and port.port == 1 and not port.is_virtual_function:
            yield SeenPart("hca", port.device, port.guid, port.hca_type)
    for drive in () if isinstance(drives, Unknown) else drives:
        if drive.serial:
            yield SeenPart("nvme", drive.name, drive.serial, drive.model)
    plugged = facts[transceivers]
    for device, cable in () if isinstance(plugged, Unknown) else plugged.items():
        if not isinstance(cable, Unknown) and cable.serial:
            yield SeenPart(CABLE, f"{device} cable", cable.serial, cable.module.removesuffix(cable.serial).strip())
