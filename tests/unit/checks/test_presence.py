from dataclasses import replace

import pytest

from gpuops.inventory import GpuCable, Power
from gpuops.judging import SEVERITIES
from gpuops.probes.host.kernel_log import Xid
from gpuops.probes.host.session import Session
from gpuops.probes.nvidia.driver import Driver
from gpuops.probes.nvidia.init_failures import InitFailure
from gpuops.probes.nvidia.nvidia_smi import SmiError
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE, load

NOTHING = Unknown("lspci is not installed")
LOST = "0000:c3:00.0"


def only(verdict):
    (finding,) = verdict.findings
    return finding


def without(machine, *indices):
    """The machine after these GPUs have gone from every source."""
    gone = {machine.values["gpus"][index].address for index in indices}
    driver = machine.values["driver"]
    return machine.seeing(*(gpu for gpu in machine.values["gpus"] if gpu.address not in gone)).but(
        gpu_functions=tuple(f for f in machine.values["gpu_functions"] if f.address not in gone),
        driver=replace(driver, gpu_addresses=tuple(a for a in driver.gpu_addresses if a not in gone)),
        pcie={address: link for address, link in machine.values["pcie"].items() if address not in gone},
    )


class TestGpuCount:
    def test_all_agree(self, h100):
        assert h100.judge("gpu-count").status == "pass"

    def test_one_is_missing_on_the_bus(self, h100):
        gone = h100.values["gpus"][5].address
        machine = h100.seeing(*(g for g in h100.values["gpus"] if g.address != gone)).but(
            gpu_functions=tuple(f for f in h100.values["gpu_functions"] if f.address != gone),
            driver=NOTHING,
            pcie={a: link for a, link in h100.values["pcie"].items() if a != gone},
        )
        finding = only(machine.judge("gpu-count"))
        assert (finding.expected, finding.found, finding.severity) == (8, 7, "isolate")
        assert "power-cycle" in finding.fix

    def test_the_kernel_log_names_those_that_are_gone(self, h100):
        lost, other = (h100.values["gpus"][index].address for index in (5, 6))
        machine = without(h100, 5).with_log(Xid(lost, 79, "GPU has fallen off the bus.", 100.0))
        finding = only(machine.judge("gpu-count"))
        assert (finding.part, finding.severity) == (lost, "isolate")
        assert machine.findings() == [("gpu-count", lost)], "the Xid is an effect"
        assert "7 of 8 GPUs" in finding.message
        silent = without(h100, 5, 6).with_log(Xid(lost, 79, "GPU has fallen off the bus.", 100.0))
        assert {f.part for f in silent.judge("gpu-count").findings} == {lost, "node"}, "the log names one of two"
        here = h100.with_log(Xid(lost, 79, "GPU has fallen off the bus.", 100.0))
        assert here.judge("gpu-count").status == "pass", "it came back"
        failed = without(h100, 5).but(init_failures=(InitFailure(lost, "RmInitAdapter failed!"),))
        assert only(failed.judge("gpu-count")).part == lost
        both = without(h100, 5).with_log(Xid(lost, 79, "", 1.0), Xid("0000:ff:00.0", 79, "", 1.0))
        assert only(both.judge("gpu-count")).part == "node", "the log names more than are missing"
        assert only(without(h100, 5).with_log(Xid(other, 79, "", 1.0)).judge("gpu-count")).part == "node"

    def test_one_that_no_driver_took_is_named(self, h100):
        gone = h100.values["gpus"][5].address
        machine = h100.seeing(*(g for g in h100.values["gpus"] if g.address != gone)).but(
            driver=NOTHING, pcie={a: link for a, link in h100.values["pcie"].items() if a != gone}
        )
        finding = only(machine.judge("gpu-count"))
        assert (finding.part, finding.part_label) == ("gpu5", f"GPU 5 ({gone})")

    def test_without_a_profile_the_sources_are_compared(self, h100):
        bare = replace(h100, profile=NO_PROFILE)
        assert bare.judge("gpu-count").status == "unknown", "a GPU may be gone from all of them"
        gone = h100.values["gpus"][5].address
        machine = bare.seeing(*(g for g in h100.values["gpus"] if g.address != gone)).but(
            driver=NOTHING, pcie={a: link for a, link in h100.values["pcie"].items() if a != gone}
        )
        finding = only(machine.judge("gpu-count"))
        assert (finding.part, finding.severity) == ("gpu5", "isolate")

    @pytest.mark.parametrize("name", ["none", "l40s"])
    def test_without_a_number_an_earlier_run_tells_what_is_gone(self, h100, name):
        profile = NO_PROFILE if name == "none" else load(name)
        machine = replace(h100, profile=profile)
        assert machine.seen_before(8).judge("gpu-count").status == "unknown", "it may have had nine"
        assert machine.seen_before(0).judge("gpu-count").status == "unknown"
        assert "gpu-count" in profile.required, "so the node is unknown, too"
        finding = only(machine.seen_before(9).judge("gpu-count"))
        assert (finding.expected, finding.found, finding.severity) == (9, 8, "isolate")
        assert finding.message == "8 of 9 GPUs are there: an earlier run saw them"
        assert "gpu.count" in finding.fix

    def test_a_declared_number_counts_more_than_an_earlier_run(self, h100):
        assert h100.seen_before(9).judge("gpu-count").status == "pass"

    def test_a_power_cable_without_its_gpu(self, titan):
        cables = tuple(GpuCable(n, 2, "pcie8") for n in range(3))
        machine = replace(titan, profile=NO_PROFILE.expecting({"power.declared": Power(gpu_cables=cables)}, "x"))
        finding = only(machine.judge("gpu-count"))
        assert (finding.expected, finding.found) == (3, 2)
        assert finding.message == "2 of 3 GPUs are there: the inventory declares a power cable of GPU 2"

    def test_hidden_gpus_are_unknown_and_not_lost(self, h100):
        machine = h100.seeing(*h100.values["gpus"][:2]).but(session=Session("the cgroup /slurm/job_42"))
        verdict = machine.judge("gpu-count")
        assert (verdict.status, verdict.findings) == ("unknown", ())
        assert verdict.why == "this session sees 2 of 8 GPUs: the cgroup /slurm/job_42 may hide the others"
        assert machine.judge("gpu-lost").status == "pass"
        assert machine.findings() == []

    def test_a_container_that_hides_proc_too_is_seen_through_sys(self, h100):
        machine = h100.seeing(*h100.values["gpus"][:2]).but(
            driver=NOTHING, gpu_functions=NOTHING, installed_driver=NOTHING, session=Session("a container")
        )
        assert machine.judge("gpu-count").why == "this session sees 2 of 8 GPUs: a container may hide the others"
        assert machine.but(session=NOTHING).judge("gpu-count").status == "unknown"

    def test_one_that_the_driver_manages_and_nothing_hides_is_missing(self, h100):
        gone = h100.values["gpus"][5].address
        machine = h100.seeing(*(g for g in h100.values["gpus"] if g.address != gone))
        assert only(machine.judge("gpu-count")).message == "nvidia-smi does not list it"
        failures = (InitFailure("0000:1b:00.0", "of another"), InitFailure(gone, "RmInitAdapter failed! (0x62)"))
        for profile in (h100.profile, NO_PROFILE):
            finding = only(replace(machine, profile=profile).but(init_failures=failures).judge("gpu-count"))
            assert (finding.part, finding.severity) == ("gpu5", "isolate")
            assert finding.message == "nvidia-smi does not list it; the driver says: RmInitAdapter failed! (0x62)"
        unnamed = (InitFailure("", "RmInitAdapter failed! (0x27)"),)
        assert "(0x27)" in only(machine.but(init_failures=unnamed).judge("gpu-count")).message

    def test_an_old_failure_of_a_gpu_that_works_now_is_no_fault(self, h100):
        failures = (InitFailure("0000:1b:00.0", "RmInitAdapter failed! (0x62)"),)
        assert h100.but(init_failures=failures).judge("gpu-count").status == "pass"

    def test_sources_that_disagree_never_pass(self, h100):
        bare = replace(h100, profile=NO_PROFILE)
        smi, functions, driver = (h100.values[name] for name in ("smi", "gpu_functions", "driver"))
        doubts = [
            {"smi": replace(smi, attached_gpus=9)},
            {"gpu_functions": functions[:-1]},
            {"driver": replace(driver, gpu_addresses=driver.gpu_addresses[1:])},
        ]
        for machine in (h100, bare):
            assert [machine.but(**doubt).judge("gpu-count").status for doubt in doubts] == ["unknown"] * 3

    def test_nvidia_smi_alone_is_enough(self, h100):
        machine = h100.but(gpu_functions=NOTHING, driver=NOTHING, pcie=NOTHING)
        assert machine.judge("gpu-count").status == "pass"

    def test_without_nvidia_smi_it_is_unknown(self, h100):
        assert h100.but(smi=Unknown("nvidia-smi is not installed")).judge("gpu-count").status == "unknown"
        assert h100.without_smi("other", "NVIDIA-SMI has failed").judge("gpu-count").status == "unknown"

    def test_a_complaint_beside_a_whole_list_changes_no_count(self, h100):
        machine = h100.seeing(*h100.values["gpus"], error=SmiError("inforom", "infoROM is corrupted"))
        assert machine.judge("gpu-count").status == "pass"
        assert machine.expecting(gpu__count=9).judge("gpu-count").status == "fail"

    def test_mig_instances_are_no_gpus(self, h100):
        assert h100.with_gpus(mig_mode=True, mig_devices=7).judge("gpu-count").status == "pass"

    def test_more_than_expected_is_the_profiles_fault(self, h100):
        finding = only(h100.expecting(gpu__count=4).judge("gpu-count"))
        assert finding.severity == "warn"
        assert "profile" in finding.fix


class TestGpuLost:
    def test_nvidia_smi_names_it(self, h100):
        text = "Unable to determine the device handle for GPU5: 0000:C3:00.0: Unknown Error"
        finding = only(h100.without_smi("unknown-handle", text, LOST).judge("gpu-lost"))
        assert (finding.part, finding.severity) == ("gpu5", "isolate")
        assert text in finding.message
        assert finding.part_label == f"GPU 5 ({LOST})"
        assert "power-cycle" in finding.fix

    def test_lspci_shows_it(self, h100):
        machine = h100.without_smi("other", "NVIDIA-SMI has failed").off_the_bus(5)
        assert only(machine.judge("gpu-lost")).part == "gpu5"

    def test_both_are_one_finding(self, h100):
        finding = only(h100.without_smi("gpu-lost", "GPU is lost", LOST).off_the_bus(5).judge("gpu-lost"))
        assert finding.message == "fell off the bus: GPU is lost; lspci shows rev ff"

    def test_it_is_lost_though_nvidia_smi_still_lists_it(self, h100):
        machine = h100.seeing(*h100.values["gpus"], error=SmiError("gpu-lost", "GPU is lost", (LOST,)))
        assert only(machine.judge("gpu-lost")).part_label == h100.values["gpus"][5].label

    def test_two_are_two_findings(self, h100):
        machine = h100.without_smi("gpu-lost", "GPU is lost", LOST).off_the_bus(1)
        assert [f.part for f in machine.judge("gpu-lost").findings] == ["gpu1", "gpu5"]

    def test_an_error_without_an_address_is_still_a_fault(self, h100):
        assert only(h100.without_smi("gpu-lost", "GPU is lost").judge("gpu-lost")).part == "node"

    def test_a_suspended_card_that_answers_is_not_lost(self, h100):
        assert h100.off_the_bus(5).judge("gpu-lost").status == "pass"

    def test_an_nvswitch_is_no_gpu(self, h100):
        switch, *functions = h100.values["gpu_functions"]
        ff = replace(switch, revision="ff")
        assert h100.but(gpu_functions=(ff, *functions)).judge("gpu-lost").status == "pass"

    @pytest.mark.parametrize("smi", [Unknown("did not answer in 60 s"), None])
    def test_what_nobody_could_see_is_unknown(self, h100, smi):
        machine = h100.without_smi("driver-not-loaded", "no driver")
        machine = machine.but(smi=smi) if smi else machine
        assert machine.judge("gpu-lost").status == "unknown"

    def test_nvidia_smi_alone_is_enough(self, h100):
        assert h100.but(gpu_functions=NOTHING).judge("gpu-lost").status == "pass"


class TestNoGpu:
    def test_none_is_lost_where_there_is_none(self, without_gpu):
        verdict = without_gpu.judge("gpu-lost")
        assert (verdict.status, verdict.why) == ("skipped", "no NVIDIA GPU on this machine")

    def test_none_is_a_fault_where_the_profile_expects_some(self, without_gpu):
        finding = only(without_gpu.judge("gpu-count"))
        assert (finding.message, finding.found, finding.severity) == ("0 of 8 GPUs are there", 0, "isolate")

    def test_lspci_is_not_needed_to_see_it(self, without_gpu):
        assert without_gpu.but(gpu_functions=NOTHING).judge("gpu-lost").status == "skipped"

    @pytest.mark.parametrize(
        "sign",
        [
            {"pci_vendors": frozenset({"8086", "10de"})},
            {"pci_vendors": Unknown("a container without /proc/bus")},
            {"driver": Driver("580.126.16", open_kernel_modules=True)},
        ],
    )
    def test_a_gpu_that_may_be_there_is_unknown(self, without_gpu, sign):
        machine = without_gpu.but(**sign)
        assert machine.judge("gpu-lost").why == "nvidia-smi is not installed"
        assert {machine.judge(name).status for name in ("gpu-lost", "gpu-count")} == {"unknown"}

    def test_a_gpu_that_nvidia_smi_lists_is_there_without_a_pci_bus(self, h100):
        machine = h100.but(pci_vendors=frozenset(), driver=NOTHING, gpu_functions=NOTHING)
        assert machine.judge("gpu-lost").status == "pass"


class TestSmiErrors:
    def test_silence_passes(self, h100):
        assert h100.judge("smi-errors").status == "pass"

    @pytest.mark.parametrize(
        ("kind", "severity", "fix"),
        [("power-cable", "fail", "cable"), ("interrupt", "fail", "reboot"), ("inforom", "warn", "reset")],
    )
    def test_each_complaint_has_its_remedy(self, h100, kind, severity, fix):
        machine = h100.seeing(*h100.values["gpus"], error=SmiError(kind, "it complains", (LOST,)))
        finding = only(machine.judge("smi-errors"))
        assert (finding.part, finding.severity, finding.message) == ("gpu5", severity, "it complains")
        assert fix in finding.fix
        assert finding.severity in SEVERITIES

    def test_every_card_that_it_names_is_reported(self, h100):
        error = SmiError("inforom", "infoROM is corrupted", (LOST, "0000:1b:00.0"))
        machine = h100.seeing(*h100.values["gpus"], error=error)
        assert machine.findings() == [("smi-errors", "gpu0"), ("smi-errors", "gpu5")]

    def test_a_gpu_that_answers_with_errors_is_unknown(self, h100):
        verdict = h100.with_gpu(3, faulty_fields=("fan_speed", "clocks/sm_clock")).judge("smi-errors")
        assert (verdict.status, "GPU 3" in verdict.why, "fan_speed" in verdict.why) == ("unknown", True, True)

    def test_what_others_judge_is_unknown_here(self, h100):
        assert h100.without_smi("no-devices", "No devices were found").judge("smi-errors").status == "unknown"
