"""Whose devices are on the PCI bus, as the kernel lists them: without lspci, root, or any driver."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

NVIDIA, MELLANOX = "10de", "15b3"
_PATH = "/proc/bus/pci/devices"
_LIMIT_BYTES = 1 << 20  # a line of 200 bytes for each function


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One function on the bus: its place without the domain (``1b:00.0``), ids, and driver (empty if none)."""

    place: str
    vendor: str
    device: str
    driver: str


def parse_pci_devices(text: str) -> tuple[PciDevice, ...] | Unknown:
    """Read lines such as ``1b00 <tab> 10de2330 <tab> … <tab> nvidia``: place, ids, and last the driver."""
    rows = _rows(text)
    if isinstance(rows, Unknown):
        return rows
    return tuple(_device(row) for row in rows if len(row) > 1 and len(row[0]) == 4 and len(row[1]) == 8)


def _device(row: list[str]) -> PciDevice:
    slot, ids = int(row[0], 16) & 0xFF, row[1].lower()
    place = f"{row[0][:2]}:{slot >> 3:02x}.{slot & 7}".lower()
    return PciDevice(place, ids[:4], ids[4:], row[-1].strip() if len(row) > 2 else "")


def parse_pci_vendors(text: str) -> frozenset[str] | Unknown:
    """Return the vendors in the same lines."""
    rows = _rows(text)
    return rows if isinstance(rows, Unknown) else frozenset(row[1][:4].lower() for row in rows if len(row) > 1)


def _rows(text: str) -> list[list[str]] | Unknown:
    content = read_files(text).get(_PATH, "")
    if not content.endswith("\n") or len(content) >= _LIMIT_BYTES:
        return Unknown("the kernel's list of PCI devices cannot be read to its end")
    return [line.split("\t") for line in content.splitlines()]


pci_vendors: Probe[frozenset[str]] = Probe(
    "pci_vendors", Files((_PATH,), limit_bytes=_LIMIT_BYTES), lambda answer: parse_pci_vendors(answer.out)
)
"""The vendors of all devices on the bus. A card that answers no more stays in the kernel's list."""

pci_devices: Probe[tuple[PciDevice, ...]] = Probe(
    "pci_devices", pci_vendors.question, lambda answer: parse_pci_devices(answer.out)
)
"""The same list with places and drivers; the kernel writes it without the domains."""
