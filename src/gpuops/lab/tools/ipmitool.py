"""ipmitool: the sensors and the event log of a server's BMC."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from gpuops.lab.identity import SERIAL
from gpuops.lab.model import Node
from gpuops.lab.model.bmc import Bmc
from gpuops.lab.tools.answer import Answer
from gpuops.lab.tools.kernel_log import FAULT_SECONDS

_DEVICES = "Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0"
# what was logged when the machine was built, long before the lab started
FACTORY = (
    (" Pre-Init ", "0000000023", "Physical Security Intrusion", "General Chassis intrusion", "Asserted"),
    ("03/11/2024", "04:02:11", "Power Supply PS3 Status", "Power Supply AC lost", "Asserted"),
    ("03/11/2024", "04:19:57", "Power Supply PS3 Status", "Power Supply AC lost", "Deasserted"),
    ("03/12/2024", "08:15:40", "Event Logging Disabled SEL", "Log area reset/cleared", "Asserted"),
)


def ipmitool(node: Node, words: Sequence[str], *, root: bool) -> Answer:
    """Return what ``sdr elist``, ``sel elist|info``, ``fru print`` and ``mc info`` print; only for root."""
    if node.bmc is None:
        return Answer(err="ipmitool: not found\n", code=127)
    if not root:
        return Answer(err=f"{_DEVICES}: Permission denied\n", code=1)
    forms = {
        ("sdr", "elist"): _sdr,
        ("sel", "elist"): _sel,
        ("sel", "info"): _info,
        ("fru", "print"): _fru,
        ("mc", "info"): _mc,
    }
    form = forms.get((words[0], words[1])) if len(words) > 1 else None
    if form is None:
        return Answer(err=f"Invalid command: {' '.join(words)}\n", code=1)
    return Answer(out="".join(f"{line}\n" for line in form(node, node.bmc)))


def _sdr(_node: Node, bmc: Bmc) -> Iterator[str]:
    yield _row("SEL", 0x72, "ns", "7.1", "No Reading")
    yield _row("Intrusion", 0x73, "ok", "7.1", "")
    yield _row("Inlet Temp", 0x04, "ok", "7.1", "25 degrees C")
    yield "Unable to send command: Invalid argument"
    for number in range(1, bmc.fans + 1):
        yield _row(f"FAN{number}", 0x2F + number, "ok", f"29.{number}", f"{bmc.fan_rpm(number)} RPM")
    yield _row("FAN11", 0x2F + 11, "ns", "29.11", "No Reading")
    for number in range(1, bmc.supplies + 1):
        words = "Presence detected, Power Supply AC lost" if number in bmc.lost else "Presence detected"
        yield _row(f"PS{number} Status", 0xC7 + number, "ok", f"10.{number}", words)
        yield _row(
            f"PS{number} Input Power",
            0x90 + number,
            "ok",
            f"10.{number}",
            "0 Watts" if number in bmc.lost else "410 Watts",
        )
    if bmc.redundancy:
        yield _row("PS Redundancy", 0x77, "ok", "7.1", bmc.redundancy)
    yield _row("VBAT", 0x33, "ok", "7.1", "3.06 Volts")
    yield _row("Watchdog", 0x71, "ok", "7.1", "")


def _row(name: str, number: int, status: str, entity: str, reading: str) -> str:
    return f"{name:<16} | {number:02X}h | {status:<3} | {entity:>4} | {reading}"


def _sel(node: Node, bmc: Bmc) -> Iterator[str]:
    at = time.strftime("%m/%d/%Y | %H:%M:%S", time.localtime(node.booted + FAULT_SECONDS))
    rows = [" | ".join(event).replace("Pre-Init  | ", "Pre-Init  |") for event in FACTORY]
    rows += [f"{at} | {event}" for event in bmc.events]
    yield from (f"{number:4x} | {row}" for number, row in enumerate(rows, start=1))


def _info(_node: Node, bmc: Bmc) -> Iterator[str]:
    facts = (
        ("Version", "1.5 (v1.5, v2 compliant)"),
        ("Entries", str(len(FACTORY) + len(bmc.events))),
        ("Free Space", "0 bytes" if bmc.overflow else "15864 bytes"),
        ("Percent Used", "100%" if bmc.overflow else "3%"),
        ("Last Add Time", "11/02/2026 08:02:31"),
        ("Last Del Time", "Not Available"),
        ("Overflow", "true" if bmc.overflow else "false"),
        ("Supported Cmds", "'Reserve' 'Get Alloc Info'"),
    )
    yield "SEL Information"
    yield from (f"{name:<16} : {value}" for name, value in facts)


def _fru(node: Node, bmc: Bmc) -> Iterator[str]:
    yield "FRU Device Description : Builtin FRU Device (ID 0)"
    facts = (
        ("Board Mfg", node.system.vendor),
        ("Board Serial", f"OM{SERIAL}"),
        ("Product Manufacturer", node.system.vendor),
        ("Product Name", node.system.product),
        ("Product Serial", f"S{SERIAL}"),
    )
    yield from (f" {name:<21} : {value}" for name, value in facts)
    for number in range(1, bmc.supplies + 1):
        yield ""
        yield f"FRU Device Description : PS{number} (ID {number})"
        yield f" {'Product Serial':<21} : P{number}{SERIAL}"


def _mc(_node: Node, _bmc: Bmc) -> Iterator[str]:
    facts = (("Device ID", "32"), ("Firmware Revision", "1.05"), ("IPMI Version", "2.0"), ("Device Available", "yes"))
    yield from (f"{name:<26}: {value}" for name, value in facts)
