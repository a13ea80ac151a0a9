"""No service that is enabled on the node has failed."""

from collections.abc import Iterator

from gpuops import Finding, PartName, Profile, check
from gpuops.probes.host.services import UNITS, Service, services

_JUDGED_BY_OTHERS = frozenset(
    {
        "nvidia-fabricmanager",
        "nvidia-persistenced",
        "nvidia-imex",
        "chronyd",
        "systemd-timesyncd",
        "phc2sys",
        "timemaster",
    }
)
"""Judged by the checks `fabric-manager`, `persistence-mode`, `imex` and `clock`."""


@check(
    needs=services,
    severity="warn",
    tags=("quick", "host"),
    catches="a scheduler, container or network service that failed: jobs avoid the node, or do not start on it",
    fix="look at systemctl status and journalctl -u SERVICE, fix the cause, and restart the service",
    fix_in_common="look at what they share: an update, a configuration, the server that the service reports to",
)
def failed_services(units: dict[str, Service], _profile: Profile) -> Iterator[Finding]:
    """A service that is enabled and has failed is a warning; one that was stopped or is not enabled is not.

    It is no more than a warning, because only the operator knows which jobs need the service. Source: systemctl(1),
    is-failed; leptonai/gpud, systemd component.
    """
    for name in UNITS:
        unit = units.get(name)
        if unit and name not in _JUDGED_BY_OTHERS and unit.enabled == "enabled" and unit.active == "failed":
            fix = f"look at systemctl status {name} and journalctl -u {name}, fix the cause, and restart it"
            part = PartName(name, f"service {name}")
            yield Finding("it has failed", expected="active", found="failed", fix=fix, part=part, code=name)
