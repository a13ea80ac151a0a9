"""The parts of a node that have a serial number and may move to another node."""

from __future__ import annotations

from collections.abc import Iterator

from gpuops.facts import Facts
from gpuops.probes.host.nvme import nvme_drives
from gpuops.probes.network.ib import ib_ports
from gpuops.probes.nvidia.gpus import gpus
from gpuops.probing import Unknown
from gpuops.store.records import SeenPart

PROBES = (gpus, ib_ports, nvme_drives)
"""What parts are read from."""


def parts_of(facts: Facts) -> tuple[SeenPart, ...]:
    """Return GPUs by serial number, or UUID if they have none, HCAs by GUID, and NVMe drives by serial number."""
    return tuple(_parts(facts))


def _parts(facts: Facts) -> Iterator[SeenPart]:
    listed, ports, drives = facts[gpus], facts[ib_ports], facts[nvme_drives]
    for gpu in () if isinstance(listed, Unknown) else listed:
        if serial := gpu.serial or gpu.uuid:
            yield SeenPart("gpu", gpu.subject, serial, gpu.name or "")
    for port in () if isinstance(ports, Unknown) else ports:
        if port.guid and port.port == 1 and not port.is_virtual_function:
            yield SeenPart("hca", port.device, port.guid, port.hca_type)
    for drive in () if isinstance(drives, Unknown) else drives:
        if drive.serial:
            yield SeenPart("nvme", drive.name, drive.serial, drive.model)
