"""Parser of ``ibnetdiscover --ports``: the cables of an InfiniBand fabric, as the subnet reports them.

``CA  12  1 0x0123456789abcdef 4x HDR - SW   3  7 0xfedcba9876543210 ( 'gpu01 mlx5_0' - 'leaf1' )`` is the cable from
port 1 of gpu01's mlx5_0 to port 7 of leaf1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Unknown
from gpuops.shell import Command

_END = r"(?P<{0}kind>CA|SW|RT) +(?P<{0}lid>\d+) +(?P<{0}port>\d+) +0x(?P<{0}guid>[0-9a-f]{{16}})"
_CABLE = re.compile(
    rf"{_END.format('a_')} +(?P<width>\d+x) (?P<speed>\S+) +- +{_END.format('b_')} +"
    r"\( '(?P<a_name>.*)' - '(?P<b_name>.*)' \) *"
)
_LOOSE = re.compile(r"(?:CA|SW|RT) +\d+ +\d+ +0x[0-9a-f]{16} +\d+x \S+ +'.*' *")


@dataclass(frozen=True, slots=True)
class End:
    """One end of a cable: ``kind`` is CA (a node's port), SW (a switch's) or RT; ``name`` is what it announces."""

    kind: str
    guid: str
    port: int
    name: str


@dataclass(frozen=True, slots=True)
class Cable:
    """One cable, seen from its ``near`` end; ``speed`` is the trained speed (``4x HDR``)."""

    near: End
    far: End
    speed: str


def parse_ibnetdiscover(text: str) -> tuple[Cable, ...] | Unknown:
    """Parse ``ibnetdiscover --ports``; ports without a peer are omitted, other lines make it `Unknown`."""
    lines = [line for line in text.splitlines() if line.strip()]
    matches = [_CABLE.fullmatch(line) for line in lines]
    unreadable = next((n for n, f in zip(lines, matches, strict=True) if f is None and not _LOOSE.fullmatch(n)), None)
    if unreadable is not None or not any(matches) or not text.endswith("\n"):
        return Unknown(f"ibnetdiscover --ports: unreadable output: {(unreadable or text)[-80:]!r}")
    return tuple(
        Cable(_end(cable, "a_"), _end(cable, "b_"), f"{cable['width']} {cable['speed']}") for cable in matches if cable
    )


def _end(cable: re.Match[str], which: str) -> End:
    kind, guid, port, name = (cable[which + part] for part in ("kind", "guid", "port", "name"))
    return End(kind, guid, int(port), name.strip())


QUESTION = Command(("ibnetdiscover", "--ports"), timeout_seconds=60, become="if-refused")
"""Question to one node only, because its answer covers the whole fabric. It needs umad, so usually root."""
