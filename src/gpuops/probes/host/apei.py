"""PCIe errors that the firmware reports to the kernel (APEI): records of several lines.

``{2}[Hardware Error]:   section_type: PCIe error`` and ``{2}[Hardware Error]:   device_id: 0000:1b:00.0`` are one error
of that device. Source: Linux kernel, drivers/firmware/efi/cper.c (cper_estatus_print, cper_print_pcie) and
drivers/acpi/apei/{ghes,bert}.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_LINE = re.compile(r"(?P<number>\{\d{1,9}\})?\[Hardware Error\]:(?P<space> *)(?P<text>.*)", re.ASCII)
_BEGINS = ("Hardware error from APEI", "event severity: ")
_SEVERITY = re.compile(r"(?:event severity|Error \d+, type): (?P<word>[\w-]+)", re.ASCII)
_DEVICE = re.compile(r"device_id: (?P<address>[\da-f]{4,8}:[\da-f]{2}:[\da-f]{2}\.[0-7])", re.ASCII)
_SECTION, _PCIE = "section_type: ", "section_type: PCIe error"
_STATUS = ("aer_uncor_status: ", "aer_cor_status: ")


@dataclass(frozen=True, slots=True)
class FirmwareError:
    """One PCIe error of the device at ``address``; ``severity`` is corrected, recoverable, fatal or info.

    ``is_past`` is set for errors of the boot before, which the firmware kept (BERT). ``line`` is that of the address.
    """

    address: str
    severity: str
    text: str
    line: int
    is_past: bool = False


@dataclass
class _Record:
    """The lines of one record: number and text."""

    is_past: bool
    lines: list[tuple[int, str]] = field(default_factory=list)


def find_pcie_errors(lines: Sequence[tuple[int, str]]) -> tuple[list[FirmwareError], frozenset[int]]:
    """Return the PCIe errors in a log, and the numbers of the lines of records about nothing else.

    ``lines`` are pairs of number and text, in order.
    """
    errors: list[FirmwareError] = []
    explained: set[int] = set()
    for record in _records(lines):
        sections = [text for _, text in record.lines if text.startswith(_SECTION)]
        errors += _errors(record)
        if sections and all(text.startswith(_PCIE) for text in sections):
            explained |= {number for number, _ in record.lines}
    return errors, frozenset(explained)


def _records(lines: Sequence[tuple[int, str]]) -> list[_Record]:
    """Return the records; those that were kept from the boot before have no number, and their lines are indented."""
    records: list[_Record] = []
    by_number: dict[str, _Record] = {}
    for line_number, line in lines:
        match = _LINE.search(line)
        if match is None:
            continue
        number, text = match["number"] or "", match["text"]
        if text.startswith(_BEGINS[0] if number else _BEGINS[1]):
            by_number[number] = _Record(is_past=not number)
            records.append(by_number[number])
        elif not number and len(match["space"]) < 2:
            by_number.pop("", None)
        if number in by_number:
            by_number[number].lines.append((line_number, text))
    return records


def _errors(record: _Record) -> Iterator[FirmwareError]:
    """Yield the device of each section about PCIe, with the severity of that section."""
    severity, is_pcie = "", False
    status = next((text for _, text in record.lines if text.startswith(_STATUS)), "")
    for number, text in record.lines:
        if said := _SEVERITY.match(text):
            severity = said["word"]
        elif text.startswith(_SECTION):
            is_pcie = text.startswith(_PCIE)
        elif is_pcie and (device := _DEVICE.match(text)):
            told = ", ".join(filter(None, ("reported by the firmware", status)))
            yield FirmwareError(device["address"], severity, told, number, record.is_past)
