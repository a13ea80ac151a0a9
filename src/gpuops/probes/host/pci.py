"""Whose devices are on the PCI bus, as the kernel lists them: without lspci, root, or any driver."""

from __future__ import annotations

from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

NVIDIA, MELLANOX = "10de", "15b3"
_PATH = "/proc/bus/pci/devices"
_LIMIT_BYTES = 1 << 20  # a line of 200 bytes for each function


def parse_pci_vendors(text: str) -> frozenset[str] | Unknown:
    """Read lines such as ``1b00 <tab> 10de2330 <tab> …``: bus, device and function, then vendor and device."""
    content = read_files(text).get(_PATH, "")
    if not content.endswith("\n") or len(content) >= _LIMIT_BYTES:
        return Unknown("the kernel's list of PCI devices cannot be read to its end")
    rows = [line.split("\t") for line in content.splitlines()]
    return frozenset(row[1][:4].lower() for row in rows if len(row) > 1)


pci_vendors: Probe[frozenset[str]] = Probe(
    "pci_vendors", Files((_PATH,), limit_bytes=_LIMIT_BYTES), lambda answer: parse_pci_vendors(answer.out)
)
"""The vendors of all devices on the bus. A card that answers no more stays in the kernel's list."""
