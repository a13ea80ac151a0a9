from dataclasses import replace

import pytest
from tests.unit.checks.lab_node import NOW, answer_of, facts_of

from gpuops.facts import Facts
from gpuops.judging import discover, judge, judge_group
from gpuops.lab.faults.catalogue import faulted
from gpuops.lab.machine import names
from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, DiagResult, dcgm_diag
from gpuops.probes.nvidia.nvbandwidth import GpuBandwidths, gpu_bandwidths
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE, load

SPEED, AGREE = (discover()[name] for name in ("gpu-speed", "gpu-speeds-agree"))
PUBLISHED = (19148.1, 19239.4, 19256.4, 19190.7, 19096.0, 19272.6, 19186.8)
"""Rates of the seven healthy A100 in NVIDIA/DCGM, issue 122; the eighth made 6698.4."""
ABSENT = {"dcgm_diag": DcgmDiagnosis(installed=False), "gpu_bandwidths": GpuBandwidths({}, installed=False)}


def multiplying(*rates):
    """A diagnosis that prints these GFLOPS, and passes."""
    results = (DiagResult("diagnostic", "pass", index, gigaflops=rate) for index, rate in enumerate(rates))
    return DcgmDiagnosis(tuple(results))


def told(verdict):
    return [(f.part, f.severity, f.code) for f in verdict.findings]


def loaded(machine, *faults):
    """What a lab host says after both programs ran on it."""
    node = faulted(machine, faults)
    answers = {probe: answer_of(node, probe.question) for probe in (dcgm_diag, gpu_bandwidths)}
    values = {probe.name: probe.read(answer) for probe, answer in answers.items()}
    return Facts("gpu01", NOW, {**facts_of(machine, *faults).values, **values})


class TestAgainstTheNode:
    def test_third_of_the_speed_fails_though_the_diagnosis_passes(self, h100):
        verdict = h100.but(dcgm_diag=multiplying(6698.4, *PUBLISHED)).judge("gpu-speed")
        assert told(verdict) == [("gpu0", "fail", "multiplication")]
        assert "35%" in verdict.findings[0].message

    def test_published_spread_of_healthy_gpus_is_silent(self, h100):
        assert h100.but(dcgm_diag=multiplying(19148.1, *PUBLISHED)).judge("gpu-speed").status == "pass"

    @pytest.mark.parametrize(("rate", "severity"), [(48_000.0, None), (47_000.0, "warn"), (44_000.0, "fail")])
    def test_a_twentieth_less_warns_and_a_tenth_less_fails(self, h100, rate, severity):
        verdict = h100.but(dcgm_diag=multiplying(*[50_000.0] * 7, rate)).judge("gpu-speed")
        assert told(verdict) == ([("gpu7", severity, "multiplication")] if severity else [])

    def test_slower_of_two_gpus_is_the_one(self, h100):
        two = h100.seeing(*h100.values["gpus"][:2]).but(dcgm_diag=multiplying(10_000.0, 16_000.0))
        assert told(two.judge("gpu-speed")) == [("gpu0", "fail", "multiplication")]

    def test_copies_over_pcie_only_warn_above_the_floor(self, h100):
        rates = h100.values["gpu_bandwidths"].gb_per_s
        slow = {**rates, "device_to_host_memcpy_ce": {**rates["device_to_host_memcpy_ce"], 3: 48.5}}
        assert told(h100.but(gpu_bandwidths=GpuBandwidths(slow)).judge("gpu-speed")) == [
            ("gpu3", "warn", "copy to the host")
        ]

    def test_floor_of_the_profile_fails_even_if_all_are_alike(self, h100):
        slow = {test: dict.fromkeys(range(8), 27.0) for test in h100.values["gpu_bandwidths"].gb_per_s}
        verdict = h100.but(gpu_bandwidths=GpuBandwidths(slow)).judge("gpu-speed")
        assert {f.severity for f in verdict.findings} == {"fail"}
        assert len(verdict.findings) == 16

    def test_figures_that_are_missing_are_no_pass(self, h100):
        verdict = h100.but(dcgm_diag=multiplying(50_000.0, 50_000.0, None, *[50_000.0] * 5)).judge("gpu-speed")
        assert (verdict.status, verdict.why) == ("unknown", "no figure for the multiplication of GPU 2")

    @pytest.mark.parametrize("name", ["dcgm_diag", "gpu_bandwidths"])
    def test_program_that_failed_is_no_pass(self, h100, name):
        assert h100.but(**{name: Unknown("it hung")}).judge("gpu-speed").status == "unknown"

    def test_one_program_is_enough(self, h100):
        for name, value in ABSENT.items():
            assert h100.but(**{name: value}).judge("gpu-speed").status == "pass"
        assert h100.but(**ABSENT).judge("gpu-speed").status == "skipped"

    def test_gpus_split_by_mig_do_not_count(self, h100):
        first, *others = h100.values["gpus"]
        split = h100.seeing(replace(first, mig_mode=True), *others)
        assert split.but(dcgm_diag=multiplying(7_000.0, *[50_000.0] * 7)).judge("gpu-speed").status == "pass"


class TestAgainstTheFleet:
    def fleet(self, h100, **rates):
        nodes = {node: h100.but(dcgm_diag=multiplying(*[rate] * 8)).facts(node) for node, rate in rates.items()}
        return {v.node: v for v in judge_group(AGREE, nodes, h100.profile)}

    def test_node_whose_gpus_are_all_slow_is_named(self, h100):
        verdicts = self.fleet(h100, a=50_000.0, b=50_200.0, c=40_000.0, d=49_900.0)
        assert {node: v.status for node, v in verdicts.items()} == {"a": "pass", "b": "pass", "c": "warn", "d": "pass"}

    def test_two_nodes_show_no_majority(self, h100):
        assert {v.status for v in self.fleet(h100, a=50_000.0, b=30_000.0).values()} == {"skipped"}

    def test_another_model_is_not_compared(self, h100):
        other = h100.seeing(*(replace(g, name="NVIDIA L40S") for g in h100.values["gpus"]))
        nodes = {"x": other.but(dcgm_diag=multiplying(*[9_000.0] * 8), gpu_bandwidths=ABSENT["gpu_bandwidths"]).facts()}
        nodes |= dict.fromkeys("abc", h100.facts())
        assert {v.status for v in judge_group(AGREE, nodes, NO_PROFILE)} == {"pass"}


class TestOnTheLab:
    @pytest.mark.parametrize("machine", names())
    def test_healthy_hosts_are_silent(self, machine):
        facts = loaded(machine)
        assert judge(SPEED, facts, load(machine)).status == "pass"
        assert {v.status for v in judge_group(AGREE, dict.fromkeys("abc", facts), load(machine))} == {"pass"}

    @pytest.mark.parametrize(
        ("fault", "code"), [("slow-compute", "multiplication"), ("slow-memory", "copy within its memory")]
    )
    def test_slow_gpu_is_named(self, fault, code):
        verdict = judge(SPEED, loaded("hgx-h100", f"gpu5:{fault}"), load("hgx-h100"))
        assert told(verdict) == [("gpu5", "fail", code)]

    def test_slow_node_is_named(self):
        slow, well = loaded("hgx-h100", "host:slow-gpus"), loaded("hgx-h100")
        assert judge(SPEED, slow, load("hgx-h100")).status == "pass"
        verdicts = judge_group(AGREE, {"a": well, "b": slow, "c": well}, load("hgx-h100"))
        assert {v.node: v.status for v in verdicts} == {"a": "pass", "b": "warn", "c": "pass"}
