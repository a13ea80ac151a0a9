"""The fabric manager's version, which must be the driver's to the last digit."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_VERSION = re.compile(r"version\b[^\d\n]*(\d+(?:\.\d+)+)\s*\n", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class FabricManager:
    """The installed fabric manager (whether it runs is systemd's to say: `gpuops.probes.host.services`)."""

    version: str


def parse_fabric_manager(text: str) -> FabricManager | Unknown:
    """Read the version in ``nv-fabricmanager --version`` ("Fabric Manager version is : 580.126.16")."""
    match = _VERSION.search(text)
    return FabricManager(match[1]) if match else Unknown(f"nv-fabricmanager tells no version: {text[:80]!r}")


fabric_manager: Probe[FabricManager] = Probe(
    "fabric_manager",
    Command(("nv-fabricmanager", "--version")),
    lambda answer: parse_fabric_manager(answer.out),
)
"""The fabric manager on the disk; nodes without NVSwitch have none."""
