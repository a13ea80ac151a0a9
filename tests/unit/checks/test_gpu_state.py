"""How a GPU is set, how hot its memory is, and who uses it."""

import pytest

from gpuops.probes.host.session import Session
from gpuops.probes.nvidia.nvidia_smi import Process
from gpuops.probing import Unknown


def only(verdict):
    (finding,) = verdict.findings
    return finding


class TestComputeMode:
    def test_default_passes(self, h100, titan):
        assert h100.judge("compute-mode").status == "pass"
        assert titan.judge("compute-mode").status == "skipped"

    def test_prohibited_fails(self, h100):
        machine = h100.with_gpu(2, compute_mode="Prohibited")
        assert machine.findings() == [("compute-mode", "gpu2")]
        finding = only(machine.judge("compute-mode"))
        assert (finding.severity, finding.fix) == ("fail", "nvidia-smi -i 2 -c DEFAULT")

    def test_exclusive_everywhere_is_a_choice(self, h100):
        verdict = h100.with_gpus(compute_mode="Exclusive_Process").judge("compute-mode")
        assert (verdict.status, {f.severity for f in verdict.findings}) == ("pass", {"info"})
        assert only(h100.with_gpu(2, compute_mode="Exclusive_Process").judge("compute-mode")).severity == "warn"

    def test_a_gpu_that_does_not_tell_is_unknown(self, h100):
        assert h100.with_gpu(2, compute_mode=None).judge("compute-mode").status == "unknown"


AT_WORK = {"utilization_percent": 97, "throttle_reasons": ()}


class TestClocks:
    def test_application_clocks_below_the_default(self, h100):
        finding = only(h100.with_gpu(2, application_mhz=1200).judge("gpu-clocks"))
        assert (finding.part, finding.severity, finding.expected, finding.found) == ("gpu2", "warn", 1980, 1200)

    def test_the_same_on_all_is_a_choice(self, h100):
        assert h100.with_gpus(application_mhz=1200).judge("gpu-clocks").status == "pass"
        alone = h100.seeing(h100.values["gpus"][0]).with_gpu(0, application_mhz=1200)
        assert only(alone.judge("gpu-clocks")).severity == "warn"

    def test_locked_clocks_show_at_work(self, h100):
        machine = h100.with_gpus(**AT_WORK).with_gpu(2, graphics_mhz=1200)
        assert machine.findings() == [("gpu-clocks", "gpu2")]
        assert h100.with_gpu(2, graphics_mhz=345).judge("gpu-clocks").status == "pass"  # idle

    @pytest.mark.parametrize("reason", ["sw_power_cap", "hw_thermal_slowdown"])
    def test_clocks_that_power_or_heat_lowers_are_judged_elsewhere(self, h100, reason):
        machine = h100.with_gpus(**AT_WORK).with_gpu(2, graphics_mhz=1200, throttle_reasons=(reason,))
        assert machine.judge("gpu-clocks").status == "pass"

    def test_small_differences_are_normal(self, h100):
        assert h100.with_gpus(**AT_WORK).with_gpu(2, graphics_mhz=1785).judge("gpu-clocks").status == "pass"

    def test_what_a_new_driver_does_not_tell_is_skipped(self, h100):
        silent = h100.with_gpus(application_mhz=None, application_mhz_default=None)
        assert silent.judge("gpu-clocks").status == "skipped"


class TestMemoryTemperature:
    def test_at_its_own_limit_it_fails(self, h100):
        machine = h100.with_gpus(memory_max_celsius=95)
        assert machine.with_gpu(2, memory_temperature_celsius=94).judge("temperature").status == "pass"
        finding = only(machine.with_gpu(2, memory_temperature_celsius=95).judge("temperature"))
        assert (finding.part, finding.severity, finding.found) == ("gpu2", "fail", 95)

    def test_without_a_limit_of_its_own_it_warns(self, h100):
        assert only(h100.with_gpu(2, memory_temperature_celsius=97).judge("temperature")).severity == "warn"

    def test_a_chip_that_is_too_hot_is_one_finding(self, h100):
        assert only(h100.with_gpu(2, tlimit_celsius=0, memory_temperature_celsius=99).judge("temperature")).unit


class TestStrayMemory:
    def test_memory_without_a_process_warns(self, h100):
        machine = h100.with_gpu(2, memory_used_mib=30_000)
        assert machine.findings() == [("stray-memory", "gpu2")]
        finding = only(machine.judge("stray-memory"))
        assert (finding.severity, finding.found, "/dev/nvidia2" in finding.fix) == ("warn", 30_000, True)

    def test_what_the_driver_holds_on_every_gpu_is_normal(self, h100):
        assert h100.with_gpus(memory_used_mib=729).judge("stray-memory").status == "pass"
        assert h100.with_gpu(2, memory_used_mib=511).judge("stray-memory").status == "pass"

    @pytest.mark.parametrize("changes", [{"processes": (Process(4711, None, None),)}, {"mig_mode": True}])
    def test_memory_of_a_process_is_in_use(self, h100, changes):
        assert h100.with_gpu(2, memory_used_mib=30_000, **changes).judge("stray-memory").status == "pass"

    def test_a_container_sees_no_processes(self, h100):
        machine = h100.with_gpu(2, memory_used_mib=30_000)
        assert machine.but(session=Session("a container")).judge("stray-memory").status == "skipped"
        assert machine.but(session=Unknown("not asked")).judge("stray-memory").status == "unknown"

    @pytest.mark.parametrize("field", ["memory_used_mib", "processes"])
    def test_what_is_not_told_is_unknown_beside_others_and_else_skipped(self, h100, field):
        assert h100.with_gpu(2, **{field: None}).judge("stray-memory").status == "unknown"
        assert h100.with_gpus(**{field: None}).judge("stray-memory").status == "skipped"
