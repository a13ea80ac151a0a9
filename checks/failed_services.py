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
"""By `fabric-manager`, `persistence-mode`, `imex` and `clock`, which know what each of them is for."""


@check(
    needs=services,
    severity="warn",
    tags=("quick", "host"),
    catches="a daemon of the scheduler, of containers or of the fabric that died: jobs skip the node, or fail on it",
    fix="see systemctl status and journalctl -u of the service, mend the cause, and restart it",
    fix_in_common="look at what they share: an update, a configuration, the server that the service reports to",
)
def failed_services(units: dict[str, Service], _profile: Profile) -> Iterator[Finding]:
    """A unit that is enabled and in the state ``failed`` is a warning; one that was stopped or is disabled is not.

    Source: systemctl(1), is-failed; leptonai/gpud, systemd component. Which jobs need the service, only the operator
    knows.
    """
    for name in UNITS:
        unit = units.get(name)
        if unit and name not in _JUDGED_BY_OTHERS and unit.enabled == "enabled" and unit.active == "failed":
            fix = f"see systemctl status {name} and journalctl -u {name}; mend the cause, and restart it"
            part = PartName(name, f"service {name}")
            yield Finding("it has failed", expected="active", found="failed", fix=fix, part=part, code=name)
