"""Services that are enabled and have failed."""

import pytest

from gpuops.probes.host.services import Service
from gpuops.probing import Unknown

FAILED = Service("loaded", "failed", "failed", "enabled")


def with_unit(machine, name, unit):
    return machine.but(services={**machine.values["services"], name: unit})


@pytest.mark.parametrize("name", ["slurmd", "docker", "nvidia-dcgm", "openibd"])
def test_a_service_that_failed_is_a_warning(h100, name):
    machine = with_unit(h100, name, FAILED)
    (finding,) = machine.judge("failed-services").findings
    assert (finding.part, finding.severity) == (name, "warn")
    assert f"journalctl -u {name}" in finding.fix
    assert machine.findings() == [("failed-services", name)]


@pytest.mark.parametrize(
    "unit",
    [
        Service("loaded", "inactive", "dead", "enabled"),
        Service("loaded", "failed", "failed", "disabled"),
        Service("not-found", "inactive", "dead", ""),
        Service("loaded", "activating", "auto-restart", "enabled"),
        Service("loaded", "active", "running", "enabled"),
    ],
)
def test_one_that_was_stopped_or_is_not_wanted_is_none(h100, unit):
    assert with_unit(h100, "slurmd", unit).judge("failed-services").status == "pass"


def test_units_that_another_check_judges_are_told_once(h100):
    assert with_unit(h100, "nvidia-fabricmanager", FAILED).findings() == [("fabric-manager", "fabricmanager")]
    assert h100.but(services=Unknown("systemctl is not installed")).judge("failed-services").status == "unknown"
