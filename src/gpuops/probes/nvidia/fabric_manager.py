"""Version of the fabric manager, which must be identical to the driver's.

``Fabric Manager version is : 580.126.16`` is version 580.126.16.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

_VERSION = re.compile(r"version\b[^\d\n]*(\d+(?:\.\d+)+)\s*\n", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class FabricManager:
    """Installed fabric manager; `gpuops.probes.host.services` reports whether it is running."""

    version: str


def parse_fabric_manager(text: str) -> FabricManager | Unknown:
    """Return the version in the output of ``nv-fabricmanager --version``."""
    match = _VERSION.search(text)
    return FabricManager(match[1]) if match else Unknown(f"nv-fabricmanager prints no version: {text[:80]!r}")


fabric_manager: Probe[FabricManager] = Probe(
    "fabric_manager",
    Command(("nv-fabricmanager", "--version")),
    lambda answer: parse_fabric_manager(answer.out),
)
"""Installed fabric manager; nodes without NVSwitch have none."""
