"""Decoding of the Xids of NVLink: 144 to 150 by their hex words, and 74 by its registers.

``NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 …)`` is the unit NETIR_LINK_EVT with sub-code 37: the
device at the other end of link 0 is the suspect. The unit is in the low bits of the first word (ten of them, or seven
on newer parts), the sub-code in its bits 25 to 20, and the error status is the second word.

Sources: NVIDIA's sheet "XID 144-150 Decode" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) and
NVIDIA's WORKFLOW_NVLINK_ERR for the registers of Xid 74, as NVSentinel's design of its NVLink monitor quotes it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ignore", "report", "cables", "software", "host", "may-reset", "follow", "follow-link", "reset"]
Suspect = Literal["", "link", "peer", "software", "host"]

CODES = frozenset(range(144, 151))
"""The Xids whose hex words decide."""

_LINE = re.compile(
    r"(?P<unit>[A-Z][A-Z\d_/]{2,40}) +(?P<word>Nonfatal|Fatal) +(?:XC[01] +)?(?:i\d +)?Link +(?P<link>-?\d{1,3})"
    r"(?: +\((?P<words>0[xX][\da-fA-F]{1,8}(?:[ ,]+0[xX][\da-fA-F]{1,8})*))?",
    re.ASCII,
)
_SOFTWARE_ERROR = 0x80000000
_ANY = None
_Rows = Mapping[int | None, Verdict]


def _rows(
    *, reset: Iterable[int] = (), ignore: Iterable[int] = (), report: Iterable[int] = ()
) -> dict[int | None, Verdict]:
    by_verdict: tuple[tuple[Verdict, Iterable[int]], ...] = (("reset", reset), ("ignore", ignore), ("report", report))
    return {status: verdict for verdict, statuses in by_verdict for status in statuses}


_RLW: _Rows = {_SOFTWARE_ERROR: "report"}
_TLW: _Rows = _rows(reset=(0x4,), ignore=(0x1,), report=(0x2, _SOFTWARE_ERROR))
_BER: _Rows = dict.fromkeys(range(4), "cables")
# (Xid, unit's ten bits, unit's seven bits) -> name and what each error status asks for; None: whatever the status is
_UNITS: tuple[tuple[int, int, int, str, _Rows], ...] = (
    (144, 0b0000100001, 0b0000001, "SAW_MVB", _rows(reset=(0x2, 0x10), ignore=(0x4, 0x20), report=(0x1, 0x8))),
    (145, 0b0001100010, 0b0000011, "RLW_CTRL", _RLW),
    (
        145,
        0b0010000010,
        0b0000100,
        "RLW_REMAP",
        {
            **_RLW,
            **_rows(reset=(0x40, 0x80), ignore=(0x100, 0x200)),
            0x1: "follow",
            0x2: "follow",
            0x4: "follow-link",
            0x8: "follow-link",
            0x10: "follow-link",
            0x20: "follow-link",
        },
    ),
    (145, 0b0010100010, 0b0000101, "RLW_RSPCOL", {**_RLW, **_rows(reset=(0x2,), ignore=(0x1,))}),
    (
        145,
        0b0011000010,
        0b0000110,
        "RLW_RXPIPE",
        {**_RLW, 0x8: "report", 0x1: "may-reset", 0x2: "may-reset", 0x4: "may-reset"},
    ),
    (
        145,
        0b0011100010,
        0b0000111,
        "RLW_SRC_TRACK",
        {**_RLW, **_rows(reset=(0x1, 0x10, 0x20), ignore=(0x2,)), 0x4: "follow", 0x8: "follow"},
    ),
    (
        145,
        0b0100000010,
        0b0001000,
        "RLW_TAGSTATE",
        {**_RLW, **_rows(reset=(0x2, 0x20000, 0x100000), ignore=(0x1, 0x10000))},
    ),
    (146, 0b0100100011, 0b0001001, "TLW_CTRL", _TLW),
    (146, 0b0101000011, 0b0001010, "TLW_RX", _TLW),
    (146, 0b0101000011, 0b0001011, "TLW_RX", _TLW),
    (146, 0b0101100011, 0b0001100, "TLW_TX", _TLW),
    (146, 0b0101100011, 0b0001101, "TLW_TX", _TLW),
    (147, 0b0110000100, 0b0001110, "TREX", {_ANY: "report"}),
    (148, 0b0000000101, 0b0001111, "NVLPW", {_ANY: "report"}),
    (149, 0b0000000110, 0b0011000, "NETIR", {_ANY: "reset"}),
    (149, 0b1000100110, 0b0010011, "NETIR_BER_EVENT", _BER),
    (149, 0b0111000110, 0b0010001, "NETIR_LINK_EVT", {}),
    (149, 0b1001000110, 0b0010100, "NETIR_MFDE_EVENT", _rows(reset=(0x1, 0x4, 0x5, 0x7), ignore=(0x3,))),
    (150, 0b0000000000, 0b0000000, "MSE_WATCHDOG", {_ANY: "reset"}),
)
_UNIT_OF = {(xid, 10, bits): (name, rows) for xid, bits, _, name, rows in _UNITS} | {
    (xid, 7, bits): (name, rows) for xid, _, bits, name, rows in _UNITS
}

_LINK_EVENT = "NETIR_LINK_EVT"
_ALONE, _DAILY = "the other end may have caused it; report it if no other GPU has an error", "report it if it is daily"
_SIGNAL, _CABLES = "check the link's signal integrity", "check the link's signal integrity and its cables"
_USER = "software or a user took the link down"
_PEER = "the device at the other end of the link is the suspect: look there first"
_LINK_ROWS: dict[int, tuple[Verdict, Suspect, str]] = {
    0: ("reset", "", _ALONE),
    1: ("reset", "", _DAILY),
    **dict.fromkeys((2, 4, 10), ("reset", "link", _SIGNAL)),
    **dict.fromkeys((15, 17, 22), ("reset", "software", _USER)),
    **dict.fromkeys((16, 18), ("reset", "software", f"{_USER}, or {_SIGNAL}")),
    **dict.fromkeys((21, *range(32, 38)), ("reset", "peer", _PEER)),
    38: ("software", "software", _USER),
    40: ("host", "host", "look at the host: its software or its power"),
    **dict.fromkeys((42, 43), ("reset", "link", _CABLES)),
}
"""What each sub-code of a link that went down asks for, and the part that it blames."""

_ADVICE: dict[Verdict, str] = {
    "ignore": "nothing to do",
    "report": "nothing to do now; if it repeats, report it to NVIDIA",
    "cables": "clean, reseat or replace the link's cables and connectors; check its signal integrity",
    "software": _USER,
    "host": "look at the host: its software or its power",
    "may-reset": "reset the GPU if its jobs hang or an Xid 154 asks for it",
    "follow": "do what the Xid 154 after it asks for",
    "follow-link": "do what the Xid 154 after it asks for; check the link's two ends and its cables",
    "reset": "drain the node and reset the GPU; if it repeats on the same link, report it to NVIDIA",
}
_GRAVITY: tuple[Verdict, ...] = (
    "ignore",
    "report",
    "software",
    "host",
    "follow",
    "follow-link",
    "cables",
    "may-reset",
    "reset",
)


@dataclass(frozen=True, slots=True)
class NvlinkError:
    """One error of an NVLink: what the driver's table asks for (``verdict``) and the part that it blames.

    ``link`` is None if the line names none. ``is_known`` is False if the table has no such row, or the line no words;
    then the line's own word (``is_fatal``) is all that is known.
    """

    unit: str
    verdict: Verdict
    advice: str
    is_fatal: bool
    link: int | None = None
    sub_code: int | None = None
    suspect: Suspect = ""
    is_known: bool = True

    @property
    def place(self) -> str:
        """Unit, sub-code and link: ``NETIR_LINK_EVT, sub-code 37, link 0``."""
        sub_code = f"sub-code {self.sub_code}" if self.sub_code is not None and self.unit == _LINK_EVENT else ""
        return ", ".join(filter(None, (self.unit, sub_code, "" if self.link is None else f"link {self.link}")))


def decode_nvlink(code: int, text: str) -> NvlinkError | None:
    """Return the error in the ``text`` of Xid ``code``; None if it is not one of `CODES` or its line has another form.

    The table decides. An error that it lacks is monitored, whatever the line's own word.
    """
    match = _LINE.search(text) if code in CODES else None
    if match is None:
        return None
    number = int(match["link"])
    link, is_fatal = (number if number >= 0 else None), match["word"] == "Fatal"
    words = [int(word, 16) for word in re.findall(r"0[xX][\da-fA-F]+", match["words"] or "")]
    row = _row(code, words[0], words[1]) if len(words) > 1 else None
    if row is None:
        advice = "not in NVIDIA's table: do what an Xid 154 after it asks for, and look whether the link is up"
        return NvlinkError(match["unit"].partition("/")[0], "report", advice, is_fatal, link, is_known=False)
    unit, sub_code, verdict, suspect, remark = row
    advice = f"{_ADVICE[verdict]}; {remark}" if remark and remark != _ADVICE[verdict] else _ADVICE[verdict]
    return NvlinkError(unit, verdict, advice, is_fatal, link, sub_code, suspect)


def _row(code: int, information: int, status: int) -> tuple[str, int, Verdict, Suspect, str] | None:
    """Return unit, sub-code, verdict, suspect and remark of NVIDIA's table; None if it has no such row."""
    sub_code = information >> 20 & 0x3F
    unit = _UNIT_OF.get((code, 10, information & 0x3FF)) or _UNIT_OF.get((code, 7, information & 0x7F))
    if unit is None:
        return None
    name, rows = unit
    if name == _LINK_EVENT:
        return (name, sub_code, *_LINK_ROWS[sub_code]) if sub_code in _LINK_ROWS else None
    verdict = rows.get(_ANY) or _verdict_of(rows, status)
    return (name, sub_code, verdict, "link" if verdict == "cables" else "", "") if verdict and not sub_code else None


def _verdict_of(rows: _Rows, status: int) -> Verdict | None:
    """Return the most severe verdict of a ``status``, which may have several bits; None if one of them has no row."""
    if status in rows:
        return rows[status]
    bits = [rows.get(1 << bit) for bit in range(32) if status >> bit & 1]
    known = [verdict for verdict in bits if verdict is not None]
    return max(known, key=_GRAVITY.index) if known and len(known) == len(bits) else None


_REGISTERS = re.compile(r"\blink (\d{1,3})\s?\((0x[\da-fA-F]{1,8}(?:, ?0x[\da-fA-F]{1,8}){4,6})\)", re.IGNORECASE)

RegisterVerdict = Literal["ignore", "secondary", "report", "parity", "repeats", "marginal", "reseat", "reset"]
_BITS: dict[int, tuple[tuple[RegisterVerdict, tuple[int, ...]], ...]] = {
    0: (
        ("ignore", (0, 23, 30)),
        ("secondary", (1, 20)),
        ("parity", (4, 5)),
        ("report", (27, 29)),
        ("marginal", (21, 22)),
        ("reseat", (8, 9, 12, 16, 17, 24, 28)),
    ),
    2: (("parity", (0, 1, 2, 6)), ("report", (13, 17, 18)), ("repeats", (16, 19))),
    3: (("secondary", (16, 17)), ("reset", (18,))),
    4: (("ignore", (20, 23, 26, 29)), ("parity", (18, 19, 21, 22, 24, 25, 27, 28))),
}
_VERDICT_OF_BIT = {
    (register, bit): verdict for register, rows in _BITS.items() for verdict, bits in rows for bit in bits
}
_REGISTER_GRAVITY: tuple[RegisterVerdict, ...] = (
    "ignore",
    "secondary",
    "report",
    "parity",
    "repeats",
    "marginal",
    "reseat",
    "reset",
)
_HARDWARE_FROM: Mapping[RegisterVerdict, int] = {"parity": 3, "repeats": 2}
"""From this many on one link, an error that may happen once is hardware. NVIDIA: more than twice, or repeatedly."""


_LINK = re.compile(r"\blink (\d{1,3})\b", re.IGNORECASE | re.ASCII)


def link_of(text: str) -> int | None:
    """Return the link that the text of an Xid names."""
    match = _LINK.search(text)
    return int(match[1]) if match else None


def decode_registers(text: str) -> tuple[int, RegisterVerdict] | None:
    """Return the link of an Xid 74 and what its registers ask for; None if they are unreadable or unlisted."""
    match = _REGISTERS.search(text)
    if match is None:
        return None
    registers = [int(word, 16) for word in match[2].split(",")]
    set_bits = [(r, bit) for r in _BITS for bit in range(32) if registers[r] >> bit & 1]
    verdicts = [_VERDICT_OF_BIT.get(bit) for bit in set_bits]
    known = [verdict for verdict in verdicts if verdict]
    if not known or len(known) < len(verdicts):
        return None
    return int(match[1]), max(known, key=_REGISTER_GRAVITY.index)


def is_hardware(verdict: RegisterVerdict, times: int) -> bool:
    """Return True if a link that logged ``verdict`` so many ``times`` is broken, whatever it does now."""
    return times >= _HARDWARE_FROM.get(verdict, times + 1)


def has_broken_link(texts: Iterable[str]) -> bool:
    """Return True if the Xids 74 of one GPU, of which these are the texts, show a link that is broken."""
    counted = Counter(decode_registers(text) for text in texts)
    return any(link and is_hardware(link[1], times) for link, times in counted.items())
