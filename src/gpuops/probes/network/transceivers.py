"""Optics, cables and signal quality of NVIDIA's adapters, from ``mlxlink`` (MFT) as root.

``Rx Power Current [dBm] : 1.886,1.989 [-10.41..6]`` are two lanes and the range that the module itself allows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_ANSI = re.compile(r"\x1b\[[\d;]*m")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
_RANGE = re.compile(r"\[(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)\]", re.ASCII)
_DARK_DBM = -30.0
_ERROR = "-E-"
_END, _MISSING = "-- end", "no program"


@dataclass(frozen=True)
class OpticalReading:
    """Values of one quantity, one for each lane, and the range that the module allows; None if it names none."""

    values: tuple[float, ...]
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Transceiver:
    """What mlxlink reports of one port; None, or empty, if it does not report it.

    Bit error rates are since the counters were cleared, ``minutes`` ago. Powers of lanes without light are left out:
    modules have more lanes than links.
    """

    state: str = ""
    celsius: OpticalReading | None = None
    rx_dbm: OpticalReading | None = None
    tx_dbm: OpticalReading | None = None
    effective_ber: float | None = None
    raw_ber: float | None = None
    minutes: float | None = None
    recommendation: str = ""
    module: str = ""
    serial: str = ""


def parse_transceivers(text: str) -> dict[str, Transceiver | Unknown] | Unknown:
    """Return the transceiver of each device; none if mlxlink is not installed."""
    *parts, end = re.split(r"^-- (\S+)\n", f"{_ANSI.sub('', text)}\n", flags=re.MULTILINE)[1:] or [""]
    if not parts or parts.pop() != "end" or end.strip():
        return Unknown(f"expected the ports of mlxlink, found {text[-80:]!r}")
    if any(body.strip() == _MISSING for body in parts[1::2]):
        return {}
    return {device: _transceiver(body) for device, body in zip(parts[::2], parts[1::2], strict=True)}


def _transceiver(body: str) -> Transceiver | Unknown:
    fields: dict[str, str] = {}
    for line in body.splitlines():
        key, separator, value = line.partition(" : ")
        if separator:
            fields.setdefault(key.strip(), value.strip())
    if "State" not in fields:
        message = next((line.strip() for line in body.splitlines() if line.strip()), "nothing")
        refused = any(word in body.lower() for word in ("password", "permission", "root", "not permitted"))
        return Unknown(f"mlxlink: {message[:100]}", needs_root=refused)
    return Transceiver(
        fields["State"],
        _reading(fields, "Temperature [C]"),
        _lit(_reading(fields, "Rx Power Current [dBm]")),
        _lit(_reading(fields, "Tx Power Current [dBm]")),
        _number(fields, "Effective Physical BER"),
        _number(fields, "Raw Physical BER"),
        _number(fields, "Time Since Last Clear [Min]"),
        fields.get("Recommendation", ""),
        " ".join(fields.get(f"Vendor {name}", "") for name in ("Name", "Part Number", "Serial Number")).strip(),
        fields.get("Vendor Serial Number", ""),
    )


def _number(fields: Mapping[str, str], name: str) -> float | None:
    found = _NUMBER.fullmatch(fields.get(name, ""))
    return float(found[0]) if found else None


def _reading(fields: Mapping[str, str], name: str) -> OpticalReading | None:
    """Return the values before the range; a range of no width is that of a cable without sensors."""
    text, _, _ = fields.get(name, "").partition("[")
    cells = [_NUMBER.fullmatch(cell.strip()) for cell in text.split(",")]
    values = tuple(float(cell[0]) for cell in cells if cell)
    limits = _RANGE.search(fields.get(name, ""))
    if not values or (limits and float(limits[1]) >= float(limits[2])):
        return None
    return OpticalReading(values, float(limits[1]), float(limits[2])) if limits else OpticalReading(values)


def _lit(reading: OpticalReading | None) -> OpticalReading | None:
    values = tuple(value for value in reading.values if value > _DARK_DBM) if reading else ()
    return OpticalReading(values, reading.low, reading.high) if reading and values else None


# one after another, as the firmware answers one at a time; ls and cat show a mounted or simulated /sys alike
_SCRIPT = (
    "rc=0; for d in $(ls /sys/class/infiniband 2>/dev/null); do "
    'ls /sys/class/infiniband/$d/device/physfn >/dev/null 2>&1 && continue; echo "-- $d"; '
    f"if command -v mlxlink >/dev/null; then timeout 8 mlxlink -d $d -m -c -e 2>&1 || rc=1; else echo {_MISSING}; fi; "
    f"done; echo '{_END}'; exit $rc"
)
transceivers: Probe[dict[str, Transceiver | Unknown]] = Probe(
    "transceivers",
    Command(("sh", "-c", _SCRIPT), timeout_seconds=90, become="if-refused"),
    lambda answer: parse_transceivers(answer.out),
    accepts=frozenset({0, 1}),  # one port may refuse
    cost="slow",
)
"""Transceivers of all adapters. Takes seconds for each port."""
