"""Access Control Services (ACS) of PCIe bridges, from ``lspci -vvv`` as root.

``ACSCtl: SrcValid+ …`` of a bridge above a GPU and a NIC sends what they exchange through the processor.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probes.nvidia.nvidia_smi.gpu import canonical_address
from gpuops.probing import Probe, Unknown
from gpuops.shell import Command, Completed

_HEADING = re.compile(r"^((?:[\da-f]{4,8}:)?[\da-f]{2}:[\da-f]{2}\.[0-7]) (.*)$", re.MULTILINE)
_CONTROL = re.compile(r"^\s+ACSCtl:\s*SrcValid([+-])", re.MULTILINE)
_LSPCI = ("lspci", "-vvv")
_MISSING = 127


@dataclass(frozen=True)
class Acs:
    """Addresses of all bridges, and of those on which ACS is on."""

    bridges: frozenset[str]
    enabled: frozenset[str]


def parse_acs(text: str) -> Acs | Unknown:
    """Parse ``lspci -vvv``; a bridge without the capability has none that could be on."""
    _, *parts = _HEADING.split(text)
    bridges, enabled = set(), set()
    for heading, title, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        address = canonical_address(heading)
        if address and title.startswith("PCI bridge"):
            bridges.add(address)
            control = _CONTROL.search(body)
            if control and control[1] == "+":
                enabled.add(address)
            if "<access denied>" in body:
                return Unknown("lspci shows the capabilities of bridges only to root", needs_root=True)
    if not bridges:
        return Unknown("lspci lists no PCI bridge")
    return Acs(frozenset(bridges), frozenset(enabled)) if text.endswith("\n") else Unknown("lspci: truncated output")


def _read_acs(answer: Completed) -> Acs | Unknown:
    if answer.exit == _MISSING:
        return Unknown("lspci is not installed")
    return parse_acs(answer.out)


# without root, lspci succeeds and shows nothing of this
_AS_ROOT = '[ "$(id -u)" = 0 ] && exec lspci -vvv; echo "needs root: not permitted" >&2; exit 1'
acs: Probe[Acs] = Probe(
    "acs",
    Command(("sh", "-c", _AS_ROOT), timeout_seconds=30, become="if-refused", root_words=_LSPCI),
    _read_acs,
    accepts=frozenset({0, _MISSING}),
    cost="slow",
)
"""ACS of every bridge. Needs root."""
