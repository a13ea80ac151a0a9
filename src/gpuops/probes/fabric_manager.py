"""The fabric manager's version, which must be the driver's to the last digit."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command


@dataclass(frozen=True)
class FabricManager:
    """The installed fabric manager (whether it runs is systemd's to say: `gpuops.probes.services`)."""

    version: str


def parse_fabric_manager(text: str) -> FabricManager | Unknown:
    """The version in ``nv-fabricmanager --version``."""
    return Unknown(f"not read yet: {text[:20]}")


fabric_manager: Probe[FabricManager] = Probe(
    "fabric_manager",
    Command(("nv-fabricmanager", "--version")),
    lambda answer: parse_fabric_manager(answer.out),
)
