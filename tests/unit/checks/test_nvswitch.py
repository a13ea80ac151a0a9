"""Errors of NVSwitches, the fabric that they form, and what a GPU asks for."""

from dataclasses import replace

import pytest

from gpuops.probes.host.kernel_log import SXid, Xid, parse_kernel_log
from gpuops.probes.nvidia.nvidia_smi import RemappedRows
from gpuops.probes.nvidia.nvlink import NvLink
from gpuops.probing import Unknown
from gpuops.profile import NO_PROFILE, load

SWITCH = "0000:05:00.0"
GPU2 = "0000:52:00.0"


def sxid(code, severity="", text="Link 30 LTSSM Fault Up", line=1):
    return SXid(SWITCH, code, text, severity, 30, "nvidia-nvswitch3", 100.0, line)


def only(verdict):
    (finding,) = verdict.findings
    return finding


class TestSXid:
    def test_a_whole_log_without_any_passes(self, h100):
        assert h100.judge("sxid").status == "pass"

    @pytest.mark.parametrize(
        ("code", "word", "severity"),
        [
            (12028, "non-fatal", "warn"),
            (11004, "non-fatal", "warn"),
            (11001, "fatal", "reset"),
            (12030, "fatal", "reset"),
            (19084, "non-fatal", "reset"),  # the table, not the word
            (12020, "fatal", "reboot"),
            (23017, "fatal", "reboot"),
            (65001, "fatal", "reset"),  # in no table: the word
            (65001, "non-fatal", "warn"),
            (65001, "", "warn"),
        ],
    )
    def test_the_table_decides_and_else_the_word(self, h100, code, word, severity):
        finding = only(h100.with_log(sxid(code, word)).judge("sxid"))
        assert (finding.severity, finding.code) == (severity, str(code))
        assert (finding.part, finding.part_label) == ("nvswitch3", f"NVSwitch 3 ({SWITCH})")

    def test_a_flood_of_corrected_errors_is_no_finding(self, h100):
        assert h100.with_log(*(sxid(20001, "non-fatal", line=n) for n in range(500))).judge("sxid").status == "pass"

    def test_the_lines_that_dump_registers_belong_to_their_error(self, h100):
        events = [sxid(11001, "fatal"), sxid(11001, "", "Severity 1 Engine instance 30"), sxid(11001, "", "Data {0x1}")]
        finding = only(h100.with_log(*events).judge("sxid"))
        assert finding.message == "SXid 11001 (fatal, Link 30 LTSSM Fault Up), 3 lines"

    def test_a_link_that_is_up_again_only_warns(self, h100):
        machine = h100.with_log(sxid(20034, "fatal"))
        assert only(machine.judge("sxid")).severity == "warn"
        assert only(machine.with_links_of(4, NvLink(0, None)).judge("sxid")).severity == "reset"
        assert only(machine.but(nvlink=Unknown("not asked")).judge("sxid")).severity == "reset"
        assert only(machine.with_gpu(1, fabric_status="Unknown Error").judge("sxid")).severity == "reset"

    def test_a_switch_that_cooled_down_is_healthy(self, h100):
        hot, cool = sxid(10004, "non-fatal", "thermal", line=3), sxid(10005, "non-fatal", "thermal", line=9)
        assert only(h100.with_log(hot).judge("sxid")).severity == "warn"
        assert h100.with_log(hot, cool).judge("sxid").status == "pass"
        assert only(h100.with_log(cool, replace(hot, line=12)).judge("sxid")).severity == "warn"

    def test_a_log_that_lost_its_beginning_is_unknown(self, h100):
        assert h100.with_log(reaches_boot=False).judge("sxid").status == "unknown"
        assert h100.with_log(sxid(12020, "fatal"), reaches_boot=False).judge("sxid").status == "fail"

    def test_without_a_profile_an_error_is_judged_and_none_is_skipped(self, h100):
        bare = replace(h100, profile=NO_PROFILE)
        assert bare.judge("sxid").status == "skipped"
        assert bare.with_log(sxid(12020, "fatal")).judge("sxid").status == "fail"

    def test_the_lines_of_other_tools_tests(self, h100):
        """As they stand in leptonai/gpud's tests (components/accelerator/nvidia/sxid/kmsg_test.go)."""
        log = parse_kernel_log(
            "[    0.000000] Linux version 5.15.0\n"
            "[  131.0] nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV"
            " error (First)\n"
            "[  132.0] nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 22003, Fatal, Link 30 PRI WRITE SYS error\n"
        )
        findings = h100.but(kernel_log=log).judge("sxid").findings
        assert [(finding.part, finding.severity) for finding in findings] == [
            ("nvswitch3", "warn"),
            ("nvswitch0", "reboot"),
        ]


class TestNvswitches:
    def switches(self, machine):
        return [f for f in machine.values["gpu_functions"] if f.is_nvswitch]

    def others(self, machine):
        return [f for f in machine.values["gpu_functions"] if not f.is_nvswitch]

    def seeing(self, machine, *switches, virtual=False):
        system = replace(machine.values["system"], virtual=virtual)
        return machine.but(gpu_functions=(*switches, *self.others(machine)), system=system)

    def test_a_missing_one_is_a_fault_of_the_board(self, h100):
        machine = self.seeing(h100, *self.switches(h100)[:3])
        assert machine.findings() == [("nvswitches", "baseboard")]
        finding = only(machine.judge("nvswitches"))
        assert (finding.expected, finding.found, finding.severity) == (4, 3, "isolate")

    def test_one_that_answers_no_more_is_named(self, h100):
        first, second, *rest = self.switches(h100)
        machine = self.seeing(h100, first, replace(second, revision="ff"), *rest)
        finding = only(machine.judge("nvswitches"))
        assert (finding.part, finding.part_label) == ("nvswitch1", "NVSwitch 1 (0000:08:00.0)")
        event = SXid("0000:08:00.0", 10003, "Host_unhandled_interrupt", "fatal", None, "nvidia-nvswitch1", 100.0, 1)
        assert machine.with_log(event).findings() == [("nvswitches", "nvswitch1")]

    def test_a_guest_may_have_none(self, h100):
        assert self.seeing(h100, virtual=True).judge("nvswitches").status == "skipped"
        assert only(self.seeing(h100).judge("nvswitches")).found == 0
        unsure = self.seeing(h100).but(system=Unknown("not asked"))
        assert unsure.judge("nvswitches").status == "unknown"
        assert only(self.seeing(h100, *self.switches(h100)[:2], virtual=True).judge("nvswitches")).found == 2

    def test_boards_whose_switches_are_no_pci_devices_are_skipped(self, h100):
        for name in ("hgx-b200", "gb200-nvl72", "titan-rtx-2x"):
            assert self.seeing(replace(h100, profile=load(name))).judge("nvswitches").status == "skipped"


class TestRecoveryAction:
    @pytest.mark.parametrize(
        ("word", "severity"),
        [
            ("Reset", "reset"),
            ("GPU Reset", "reset"),
            ("Drain and Reset", "reset"),
            ("Reboot", "reboot"),
            ("Node Reboot Required", "reboot"),
            ("Drain P2P", "warn"),
            ("PCIe Bus Reset", "isolate"),
            ("Recover IMEX Domain", "warn"),
            ("Something New", "reset"),
            ("PF FLR", "reset"),
            ("0x1 (GPU Reset Required)", "reset"),
            ("0x1 (PF FLR)", "reset"),
            ("0x2 (Node Reboot Required)", "reboot"),
            ("0x4 (Drain and Reset)", "reset"),
            ("3", "warn"),
            ("5", "warn"),
            ("6", "isolate"),
            ("0x7", "reboot"),
            ("8", "reset"),
        ],
    )
    def test_the_word_decides(self, h100, word, severity):
        finding = only(h100.with_gpu(2, recovery_action=word).judge("recovery-action"))
        assert (finding.part, finding.severity, finding.found) == ("gpu2", severity, word)
        assert finding.fix

    @pytest.mark.parametrize("word", ["None", "0", "0x0 (None)"])
    def test_none_in_every_spelling_passes(self, h100, word):
        assert h100.with_gpus(recovery_action=word).judge("recovery-action").status == "pass"

    def test_a_gpu_that_prints_its_demand_instead_of_values(self, h100):
        """As in public logs of nvidia-smi -q: ``Channel Repair Pending : GPU requires reset``."""
        machine = h100.with_gpu(2, recovery_action=None, requires_reset=True, faulty_fields=("remapped_rows",))
        finding = only(machine.judge("recovery-action"))
        assert (finding.part, finding.severity, finding.found) == ("gpu2", "reset", "GPU requires reset")
        assert machine.judge("smi-errors").status == "pass"

    def test_a_driver_that_does_not_report_it_is_skipped(self, h100):
        assert h100.with_gpus(recovery_action=None).judge("recovery-action").status == "skipped"

    def test_it_is_one_finding_with_the_xid_that_announced_it(self, h100):
        text = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
        machine = h100.with_gpu(2, recovery_action="Reset").with_log(Xid(GPU2, 154, text, 9.0))
        assert machine.findings() == [("recovery-action", "gpu2")]

    def test_its_cause_comes_first(self, h100):
        rows = RemappedRows(1, 0, pending=True, failure=False)
        machine = h100.with_gpu(2, recovery_action="Reset", remapped_rows=rows).with_log(Xid(GPU2, 63, "", 9.0))
        assert machine.findings() == [("row-remap-pending", "gpu2")]
        machine = h100.with_gpu(2, recovery_action="Reset").with_log(Xid(GPU2, 119, "Timeout", 9.0))
        assert machine.findings() == [("xid", "gpu2")]


class TestFabric:
    @pytest.mark.parametrize(
        ("profile", "fix"), [("hgx-h100", "reset all GPUs together"), ("gb200-nvl72", "of the rack")]
    )
    def test_gpus_that_do_not_join_alike_have_one_cause(self, h100, profile, fix):
        machine = replace(h100, profile=load(profile)).with_gpus(fabric_status="Insufficient Resources")
        finding = only(machine.judge("fabric-manager"))
        assert (finding.part, finding.found) == ("node", "Completed, Insufficient Resources")
        assert fix in finding.fix
        assert len(machine.with_gpu(3, fabric_status="Success").judge("fabric-manager").findings) == 7

    def test_unhealthy_routes_are_a_fault(self, h100):
        machine = h100.with_gpus(fabric_health="Healthy")
        assert machine.judge("fabric-manager").status == "pass"
        finding = only(machine.with_gpu(3, fabric_health="Unhealthy").judge("fabric-manager"))
        assert (finding.part, finding.found, finding.severity) == ("gpu3", "health Unhealthy", "fail")
        assert only(machine.with_gpu(3, fabric_health="Limited Capacity").judge("fabric-manager")).part == "gpu3"

    @pytest.mark.parametrize("profile", [NO_PROFILE, load("gb200-nvl72")], ids=lambda profile: profile.name)
    def test_a_fabric_without_a_manager_on_the_node_is_judged_by_the_gpus(self, h100, profile):
        machine = replace(h100, profile=profile).but(services={}, fabric_manager=Unknown("not installed"))
        assert machine.judge("fabric-manager").status == "pass"
        finding = only(machine.with_gpu(1, fabric_state="In Progress").judge("fabric-manager"))
        assert (finding.part, finding.found) == ("gpu1", "In Progress, Success")
        assert ("switches of the rack" in finding.fix) is (profile is not NO_PROFILE)

    @pytest.mark.parametrize(
        ("changes", "severity"),
        [
            ({"fabric_bandwidth": "Degraded"}, "fail"),
            ({"fabric_route_unhealthy": True}, "fail"),
            ({"fabric_configuration": "Insufficient NVLinks"}, "fail"),
            ({"fabric_status": "Unknown Error"}, "fail"),
            ({"fabric_recovering": True}, "warn"),
            ({"fabric_recovering": True, "fabric_health": "Unhealthy", "fabric_state": "In Progress"}, "warn"),
            ({"fabric_access_recovering": True}, "warn"),
            ({"fabric_access_recovering": True, "fabric_route_unhealthy": True}, "fail"),
        ],
    )
    def test_each_word_is_one_finding(self, h100, changes, severity):
        finding = only(h100.with_gpu(3, **changes).judge("fabric-manager"))
        assert (finding.part, finding.severity) == ("gpu3", severity)

    def test_a_gpu_that_does_not_tell_beside_others_is_unknown(self, h100):
        assert h100.with_gpu(3, fabric_state=None).judge("fabric-manager").status == "unknown"
        rack = replace(h100, profile=load("gb200-nvl72")).with_gpus(fabric_state=None)
        assert rack.but(services={}, fabric_manager=Unknown("none")).judge("fabric-manager").status == "unknown"

    @pytest.mark.parametrize(("seconds", "severity"), [(90.0, "warn"), (1_728_000.0, "fail")])
    def test_a_fabric_that_is_not_ready_soon_after_boot_warns(self, h100, seconds, severity):
        machine = h100.with_gpus(fabric_state="In Progress", fabric_status=None).but(uptime=seconds)
        assert {f.severity for f in machine.judge("fabric-manager").findings} == {severity}

    def test_cards_without_a_fabric_are_skipped(self, h100):
        machine = replace(h100, profile=NO_PROFILE).with_gpus(fabric_state=None, fabric_status=None)
        assert machine.judge("fabric-manager").status == "skipped"


DOWN = (NvLink(0, None), *(NvLink(n, 26.562) for n in range(1, 18)))


class TestOneLink:
    def fault(self, h100, *silent):
        machine = h100.with_log(sxid(20034, "fatal"))
        for index in silent:
            machine = machine.with_links_of(index, *DOWN)
        return machine

    def test_a_link_that_is_down_at_one_gpu_is_one_finding_there(self, h100):
        machine = self.fault(h100, 3)
        assert machine.findings() == [("nvlink-links", "gpu3")]
        (finding,) = machine.judge("sxid").findings
        assert finding.message.startswith("NVSwitch 3 (0000:05:00.0): SXid 20034")
        (cause,) = machine.judge_all()["nvlink-links"].findings
        assert any(effect.startswith("sxid: NVSwitch 3") for effect in cause.effects)

    def test_without_a_profile_the_xid_of_the_gpu_is_the_cause(self, h100):
        xid = Xid(GPU2, 74, "NVLink: fatal error detected on link 0(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", 99.0)
        machine = replace(h100, profile=NO_PROFILE).with_log(xid, sxid(20034, "fatal", line=2))
        assert [part for _, part in machine.with_links_of(2, *DOWN).findings()] == ["gpu2"]

    def test_a_lost_gpu_is_the_far_end_of_every_link(self, h100):
        text = "Unable to determine the device handle for GPU5: 0000:C3:00.0: Unknown Error"
        events = (
            Xid("0000:c3:00.0", 79, "GPU has fallen off the bus.", 99.0),
            *(sxid(20034, "fatal", line=n) for n in (2, 3)),
        )
        machine = h100.without_smi("unknown-handle", text, "0000:c3:00.0").with_log(*events)
        assert machine.findings() == [("gpu-lost", "gpu5")]

    def test_links_of_several_gpus_or_none_leave_it_at_the_nvswitch(self, h100):
        for silent in ((), (2, 3)):
            assert [str(f.part) for f in self.fault(h100, *silent).judge("sxid").findings] == ["nvswitch3"]
        dark = self.fault(h100, 3).but(nvlink=Unknown("dark"))
        assert [str(f.part) for f in dark.judge("sxid").findings] == ["nvswitch3"]

    def test_another_sxid_stays_at_the_nvswitch(self, h100):
        machine = h100.with_log(sxid(12020, "fatal")).with_links_of(3, *DOWN)
        assert [str(f.part) for f in machine.judge("sxid").findings] == ["nvswitch3"]
