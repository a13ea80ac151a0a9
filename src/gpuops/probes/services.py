"""The systemd units that a GPU node lives by."""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

UNITS = (
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-dcgm",
    "openibd",
    "chronyd",
    "systemd-timesyncd",
    "slurmd",
    "docker",
)


@dataclass(frozen=True, slots=True)
class Service:
    """One unit in systemd's own words: load ``loaded`` or ``not-found``, ``active``, ``running``, ``enabled``."""

    load: str
    active: str
    sub: str
    enabled: str

    @property
    def installed(self) -> bool:
        """Systemd knows the unit."""
        return self.load != "not-found"

    @property
    def running(self) -> bool:
        """The unit is active now."""
        return self.active == "active"


def parse_services(text: str) -> dict[str, Service] | Unknown:
    """Services by unit name without ``.service``."""
    return Unknown(f"not read yet: {text[:20]}")


services: Probe[dict[str, Service]] = Probe(
    "services",
    Command(("systemctl", "show", "--property=Id,LoadState,ActiveState,SubState,UnitFileState", *UNITS)),
    lambda answer: parse_services(answer.out),
)
