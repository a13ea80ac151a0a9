"""State of the systemd units that matter on a GPU node.

``LoadState=loaded``, ``ActiveState=active`` is a unit that is installed and running.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuops.probing import Probe, Unknown
from gpuops.shell import Command

UNITS = (
    "nvidia-fabricmanager",
    "nvidia-persistenced",
    "nvidia-dcgm",
    "nvidia-imex",
    "openibd",
    "chronyd",
    "systemd-timesyncd",
    "phc2sys",
    "timemaster",
    "slurmd",
    "docker",
)
_PROPERTIES = ("LoadState", "ActiveState", "SubState", "UnitFileState")


@dataclass(frozen=True, slots=True)
class Service:
    """One unit in systemd's own words: load ``loaded`` or ``not-found``, ``active``, ``running``, ``enabled``."""

    load: str
    active: str
    sub: str
    enabled: str

    @property
    def installed(self) -> bool:
        """True if systemd finds the unit."""
        return self.load != "not-found"

    @property
    def running(self) -> bool:
        """True if the unit is active."""
        return self.active == "active"


def parse_services(text: str) -> dict[str, Service] | Unknown:
    """Return the services by unit name without ``.service``, and by every alias (Ubuntu's chronyd is chrony)."""
    if not text.endswith("\n"):
        return Unknown("the output of systemctl show is truncated" if text else "systemctl show printed nothing")
    service_by_name: dict[str, Service] = {}
    for block in text.strip("\n").split("\n\n"):
        properties = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if not {"Id", *_PROPERTIES} <= set(properties):
            return Unknown(f"systemctl show: a unit lacks Id or {', '.join(_PROPERTIES)}: {block[:80]!r}")
        service = Service(*(properties[name] for name in _PROPERTIES))
        names = (properties.get("Names") or properties["Id"]).split()
        service_by_name |= {name.removesuffix(".service"): service for name in names}
    return service_by_name


services: Probe[dict[str, Service]] = Probe(
    "services",
    Command(("systemctl", "show", f"--property=Id,Names,{','.join(_PROPERTIES)}", *UNITS)),
    lambda answer: parse_services(answer.out),
)
"""State of each unit in `UNITS`; units that are not installed have the load state ``not-found``."""
