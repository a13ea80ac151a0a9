"""dmidecode: BIOS, system, board and chassis with their serial numbers, for root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuops.lab.identity import SERIAL
from gpuops.lab.model import Node
from gpuops.lab.tools.answer import Answer

_REFUSED = "/sys/firmware/dmi/tables/smbios_entry_point: Permission denied\nCan't read memory from /dev/mem\n"


def dmidecode(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``dmidecode -t TYPES`` prints; the lab knows the types 0 to 3, and prints them all."""
    if not root:
        return Answer(out="# dmidecode 3.3\n", err=_REFUSED, code=1)
    if words[:1] != ["-t"]:
        return Answer(err=f"dmidecode: invalid option -- '{' '.join(words)}'\n", code=1)
    return Answer(out="".join(f"{line}\n" for line in _lines(node)))


def _lines(node: Node) -> Iterator[str]:
    system = node.system
    yield from ("# dmidecode 3.3", "Getting SMBIOS data from sysfs.", "SMBIOS 3.4.0 present.", "")
    handles: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
        ("BIOS", (("Vendor", system.vendor), ("Version", system.bios))),
        ("System", _part(system.vendor, system.product, f"S{SERIAL}")),
        ("Base Board", _part(system.vendor, system.product, f"OM{SERIAL}")),
        ("Chassis", (("Manufacturer", system.vendor), ("Serial Number", f"C{SERIAL}"))),
    )
    for number, (name, fields) in enumerate(handles):
        yield f"Handle 0x{number:04X}, DMI type {number}, 27 bytes"
        yield f"{name} Information"
        yield from (f"\t{label}: {value}" for label, value in fields)
        yield ""


def _part(vendor: str, product: str, serial: str) -> tuple[tuple[str, str], ...]:
    return ("Manufacturer", vendor), ("Product Name", product), ("Serial Number", serial)
