"""A setting that all GPUs of a node share is one finding on the node; one that a few have is theirs."""

from dataclasses import replace

import pytest

from gpuops.profile import load


def told(machine, check):
    return [(str(f.part), f.severity, f.fix) for f in machine.judge(check).findings]


@pytest.mark.parametrize(
    ("setting", "check", "severity", "fix"),
    [
        ({"power_limit_watts": 500.0}, "power-limit", "fail", "nvidia-smi -pl 700, and find out what lowered it"),
        ({"ecc_mode": False, "ecc_mode_pending": False}, "ecc-mode", "fail", "nvidia-smi -e 1, then reboot"),
        ({"ecc_mode_pending": False}, "ecc-mode", "warn", "nvidia-smi -e 1"),
        ({"compute_mode": "Prohibited"}, "compute-mode", "fail", "nvidia-smi -c DEFAULT"),
        ({"compute_mode": "Exclusive_Process"}, "compute-mode", "info", "nvidia-smi -c DEFAULT"),
        ({"application_mhz": 1200}, "gpu-clocks", "info", "nvidia-smi -rac"),
        (
            {"mig_mode": False, "mig_pending": True},
            "compute-mode",
            "warn",
            "reset the GPUs when idle, or set the mode back: nvidia-smi -mig 0",
        ),
    ],
)
def test_setting_of_all_gpus_is_one_finding_on_the_node(h100, setting, check, severity, fix):
    assert told(h100.with_gpus(**setting), check) == [("node", severity, fix)]
    (finding,) = h100.with_gpus(**setting).judge(check).findings
    assert "all 8 GPUs (gpu[0-7])" in finding.message


def test_setting_of_some_gpus_is_a_finding_on_each(h100):
    machine = h100.with_gpu(2, power_limit_watts=500.0).with_gpu(3, power_limit_watts=500.0)
    assert [part for part, _, _ in told(machine, "power-limit")] == ["gpu2", "gpu3"]


def test_settings_that_differ_are_a_finding_on_each(h100):
    machine = h100.with_gpus(power_limit_watts=500.0).with_gpu(2, power_limit_watts=400.0)
    assert len(told(machine, "power-limit")) == 8


def test_gpu_that_does_not_report_the_setting_does_not_split_it(h100):
    machine = h100.with_gpus(power_limit_watts=500.0).with_gpu(2, power_limit_watts=None)
    (finding,) = machine.judge("power-limit").findings
    assert (finding.part, "7 of 8 GPUs (gpu[0-1,3-7])" in finding.message) == ("node", True)
    assert "GPU 2" in machine.judge("power-limit").why
    few = h100.with_gpus(power_limit_watts=None)
    few = few.with_gpu(2, power_limit_watts=500.0).with_gpu(3, power_limit_watts=500.0)
    assert [part for part, _, _ in told(few, "power-limit")] == ["gpu2", "gpu3"]


def test_only_gpu_of_a_node_keeps_its_finding(h100):
    alone = h100.seeing(h100.values["gpus"][0]).with_gpu(0, power_limit_watts=500.0)
    assert [part for part, _, _ in told(alone, "power-limit")] == ["gpu0"]


def test_link_to_the_cpu_that_is_off_on_all_gpus_is_one_finding(h100):
    rack = h100.with_gpus(name="NVIDIA GB200", c2c_mode=False)
    assert [(part, severity) for part, severity, _ in told(rack, "gpus-agree")] == [("node", "warn")]


@pytest.mark.parametrize(
    "state",
    [
        {"fabric_state": None, "fabric_status": None, "fabric_clique_id": 0},
        {"fabric_status": "Insufficient Resources"},
        {"fabric_state": "In Progress", "fabric_status": None},
        {"fabric_health": "Unhealthy", "fabric_recovering": True},
    ],
)
def test_state_in_the_fabric_that_all_gpus_share_is_one_finding(h100, state):
    rack = replace(h100, profile=load("gb200-nvl72")).with_gpus(**state)
    (finding,) = rack.judge("fabric-manager").findings
    assert (finding.part, "on all 8 GPUs" in finding.message) == ("node", True)


def test_gpus_without_a_state_beside_others_are_a_finding_each(h100):
    rack = replace(h100, profile=load("gb200-nvl72"))
    for index in (1, 2, 3):
        rack = rack.with_gpu(index, fabric_state=None, fabric_status=None, fabric_clique_id=None)
    assert [part for part, _, _ in told(rack, "fabric-manager")] == ["gpu1", "gpu2", "gpu3"]
