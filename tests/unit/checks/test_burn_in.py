from dataclasses import replace

import pytest

from gpuops.probes.nvidia.burn_in import GpuBurn
from gpuops.probes.nvidia.dcgm_diag import DcgmDiagnosis, DiagResult


@pytest.fixture
def judged(h100):
    """What a check says after a burn-in in which this was different."""

    def judged(check, **changes):
        return h100.but(burn_in=replace(h100.values["burn_in"], **changes)).judge(check)

    return judged


def told(verdict):
    return [(f.part, f.severity) for f in verdict.findings]


class TestErrors:
    def test_a_new_error_takes_the_node_out(self, judged):
        verdict = judged(
            "burn-in-errors", grown=("gpu3: crc_errors 0 → 7",), xids=("0000:1b:00.0: Xid 48, double bit",)
        )
        assert told(verdict) == [("0000:1b:00.0", "isolate"), ("gpu3", "isolate")]
        assert verdict.findings[0].message == "Xid 48, double bit during the burn-in"

    def test_what_could_not_be_counted_is_no_pass(self, judged):
        assert judged("burn-in-errors", blind=("kernel_log: not permitted",)).status == "unknown"


class TestPace:
    def test_one_slow_round_is_told_in_figures(self, judged):
        (finding,) = judged("burn-in-pace", gb_per_s=(450.0, 451.0, 380.0, 450.0)).findings
        assert (finding.expected, finding.found, finding.unit) == (405.0, 380.0, "GB/s")

    def test_a_tenth_less_is_healthy(self, judged):
        assert judged("burn-in-pace", gb_per_s=(450.0, 450.0, 405.0)).status == "pass"

    def test_a_round_that_failed_is_a_finding(self, judged):
        assert judged("burn-in-pace", troubles=("hang: rank 3", "hang: rank 3")).status == "fail"

    def test_without_a_round_nothing_is_known(self, judged):
        assert judged("burn-in-pace", gb_per_s=()).status == "unknown"


class TestHeat:
    @pytest.mark.parametrize("reason", ["hw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown"])
    def test_a_second_of_hardware_slowdown_fails(self, judged, reason):
        gpus = (GpuBurn(0, 1800, 1800, 68.0), GpuBurn(1, 1800, 1800, 69.0, slowed={reason: 0.0006}))
        assert told(judged("burn-in-heat", gpus=gpus)) == [("gpu1", "fail")]

    def test_slowing_down_by_software_warns(self, judged):
        gpus = (GpuBurn(0, 1800, 1800, 80.0, slowed={"sw_thermal_slowdown": 0.1, "sw_power_cap": 1.0}),)
        assert judged("burn-in-heat", gpus=gpus).status == "warn"

    @pytest.mark.parametrize(("celsius", "status"), [(78.0, "pass"), (78.5, "warn")])
    def test_a_card_much_hotter_than_the_coolest_warns(self, judged, celsius, status):
        gpus = (GpuBurn(0, 1800, 1800, 68.0), GpuBurn(1, 1800, 1800, celsius))
        assert judged("burn-in-heat", gpus=gpus).status == status

    @pytest.mark.parametrize(("celsius", "status"), [(75.0, "pass"), (79.0, "pass"), (80.0, "warn"), (84.0, "warn")])
    def test_eighty_degrees_warn_on_every_gpu(self, judged, celsius, status):
        gpus = (GpuBurn(0, 1800, 1800, celsius), GpuBurn(1, 1800, 1800, celsius))
        verdict = judged("burn-in-heat", gpus=gpus)
        assert verdict.status == status
        assert [f.found for f in verdict.findings] == [celsius] * (2 if status == "warn" else 0)

    def test_a_gpu_that_is_slow_hot_and_alone_has_one_finding(self, judged):
        slow = GpuBurn(1, 1800, 1800, 92.0, slowed={"hw_thermal_slowdown": 0.2})
        assert told(judged("burn-in-heat", gpus=(GpuBurn(0, 1800, 1800, 68.0), slow))) == [("gpu1", "fail")]
        hot = GpuBurn(1, 1800, 1800, 83.0)
        (finding,) = judged("burn-in-heat", gpus=(GpuBurn(0, 1800, 1800, 68.0), hot)).findings
        assert finding.expected == "within 10 °C"

    @pytest.mark.parametrize("gpus", [(), (GpuBurn(0, 1800, 0),)])
    def test_gpus_that_nobody_saw_under_load_are_unknown(self, judged, gpus):
        assert judged("burn-in-heat", gpus=gpus).status == "unknown"


class TestDiagnosis:
    def test_a_failed_test_names_its_gpu_and_what_dcgm_says(self, h100):
        found = DcgmDiagnosis((DiagResult("memory", "pass", 0), DiagResult("memory", "fail", 3, ("bad row",))))
        (finding,) = h100.but(dcgm_diag=found).judge("dcgm-diagnosis").findings
        assert (finding.part, finding.severity) == ("gpu3", "isolate")
        assert finding.message == "dcgmi diag: memory fails: bad row"

    def test_a_warning_warns(self, h100):
        found = DcgmDiagnosis((DiagResult("Persistence Mode", "warn"),))
        assert h100.but(dcgm_diag=found).judge("dcgm-diagnosis").status == "warn"

    def test_a_node_without_dcgm_is_skipped(self, h100):
        assert h100.but(dcgm_diag=DcgmDiagnosis(installed=False)).judge("dcgm-diagnosis").status == "skipped"


def test_what_healthy_links_count_too_is_a_warning(h100):
    noticed = replace(h100.values["burn_in"], noticed=("gpu3: crc_errors 0 → 2",))
    (finding,) = h100.but(burn_in=noticed).judge("burn-in-errors").findings
    assert (finding.part, finding.severity) == ("gpu3", "warn")
