"""Persistence mode: expected of data centre boards, never of a workstation."""

from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import findings_of

from gpuops.probes.host.services import Service
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE, known

WORKSTATIONS = {"titan-rtx-2x", "rtx-3090", "rtx-4090", "rtx-5090", "rtx-pro-6000-workstation"}


def told(machine):
    return [(str(f.part), f.severity) for f in machine.judge("persistence-mode").findings]


def test_one_gpu_without_it_is_named(h100):
    assert told(h100) == []
    machine = h100.with_gpu(4, persistence_mode=False)
    assert told(machine) == [("gpu4", "warn")]
    assert told(machine.with_gpu(5, persistence_mode=False)) == [("gpu4", "warn"), ("gpu5", "warn")]
    assert "nvidia-smi -i 4 -pm 1" in machine.judge("persistence-mode").findings[0].fix


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (Service("loaded", "failed", "failed", "enabled"), "; nvidia-persistenced is failed"),
        (Service("not-found", "inactive", "dead", ""), "; nvidia-persistenced is not installed"),
        (Service("loaded", "active", "running", "enabled"), ""),
        (None, ""),
    ],
)
def test_all_gpus_without_it_are_one_finding_with_the_state_of_the_daemon(h100, unit, words):
    units = {"nvidia-persistenced": unit} if unit else Unknown("no systemd")
    machine = h100.with_gpus(persistence_mode=False).but(services=units)
    assert told(machine) == [("node", "warn")]
    (finding,) = machine.judge("persistence-mode").findings
    assert finding.message == f"persistence mode is off on all 8 GPUs{words}"
    assert "nvidia-persistenced" in finding.fix


@pytest.mark.parametrize("mode", [True, False])
def test_a_daemon_that_failed_is_a_finding_whatever_the_mode_and_the_profile(h100, titan, mode):
    failed = {"nvidia-persistenced": Service("loaded", "failed", "failed", "enabled")}
    for machine in (h100, titan, replace(h100, profile=NO_PROFILE)):
        broken = machine.with_gpus(persistence_mode=mode).but(services=failed)
        assert told(broken) == [("node", "warn")]
        assert "nvidia-persistenced" in broken.judge("persistence-mode").findings[0].message
    assert told(h100.with_gpu(4, persistence_mode=False).but(services=failed)) == [("node", "warn"), ("gpu4", "warn")]
    assert told(h100.seeing(h100.values["gpus"][0]).with_gpus(persistence_mode=mode).but(services=failed)) == [
        ("node" if mode else "gpu0", "warn")
    ]


def test_what_is_not_reported_is_unknown(h100):
    assert h100.with_gpu(4, persistence_mode=None).judge("persistence-mode").status == "unknown"


def test_only_profiles_of_data_centre_boards_expect_it(titan):
    assert {profile.name for profile in known() if not profile.get("gpu.persistence")} == WORKSTATIONS
    assert titan.with_gpus(persistence_mode=False).judge("persistence-mode").status == "skipped"
    off = titan.with_gpus(persistence_mode=False)
    assert off.expecting(gpu__persistence=False).judge("persistence-mode").status == "skipped"
    assert told(off.expecting(gpu__persistence=True)) == [("node", "warn")]
    assert NO_PROFILE.get("gpu.persistence") is None


@pytest.mark.parametrize("machine", ["hgx-h100", "dgx-a100", "l40s"])
def test_the_labs_faults_are_named_once(machine):
    assert findings_of(machine, "gpu2:persistence-off")[0] == [("persistence-mode", "gpu2", "warn")]
    for fault in ("host:persistenced-failed", "host:persistenced-died"):
        assert findings_of(machine, fault)[0] == [("persistence-mode", "node", "warn")]
