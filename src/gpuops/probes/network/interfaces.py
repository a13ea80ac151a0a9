"""Network interfaces of the node, from /sys/class/net: ``operstate`` of ``up`` and ``speed`` of ``25000`` (Mbit/s)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpuops.probes.numbers import integer
from gpuops.probing import Probe, Unknown
from gpuops.shell import Files, read_files

_LEAVES = ("operstate", "mtu", "speed", "address", "carrier_changes")
_STATE = re.compile(r"/sys/class/net/([^/]+)/operstate")


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface; ``speed_mbps`` (Mbit/s) is None if it has no link or no speed."""

    name: str
    up: bool
    mtu: int | None
    speed_mbps: int | None
    address: str
    carrier_changes: int | None


def parse_interfaces(text: str) -> tuple[Interface, ...] | Unknown:
    """Return the interfaces by name; every system has at least ``lo``."""
    files = read_files(text)
    names = [match[1] for match in map(_STATE.fullmatch, files) if match]
    return tuple(_interface(name, files) for name in names) or Unknown("the kernel lists no network interface")


def _interface(name: str, files: Mapping[str, str]) -> Interface:
    state, mtu, speed, address, changes = (files.get(f"/sys/class/net/{name}/{leaf}", "") for leaf in _LEAVES)
    speed_mbps = integer(speed)
    return Interface(
        name=name,
        up=state.strip() == "up",
        mtu=integer(mtu),
        speed_mbps=speed_mbps if speed_mbps and speed_mbps > 0 else None,  # -1 means no link
        address=address.strip(),
        carrier_changes=integer(changes),
    )


interfaces: Probe[tuple[Interface, ...]] = Probe(
    "interfaces",
    Files(tuple(f"/sys/class/net/*/{leaf}" for leaf in _LEAVES)),
    lambda answer: parse_interfaces(answer.out),
)
"""All network interfaces, including those that are down."""
