"""Public cases in which a tool misread the kernel log, each with the verdict that it must have.

The lines are those of the threads that are named, with other addresses.
"""

import pytest
from tests.unit.checks.lab_node import findings_of, silent

from gpuops.lab.machine import healthy, names
from gpuops.probes.host.kernel_log import parse_kernel_log
from gpuops.probes.host.mounts import parse_mounts
from gpuops.probes.nvidia.nvidia_smi import SmiError
from gpuops.profile import load

BOOT = "Linux version 6.8.0-79-generic (buildd@lcy02-amd64-080) (x86_64-linux-gnu-gcc-13) #79-Ubuntu SMP"


def log_of(*lines, boot=BOOT, first=100.0):
    head = [f"[    0.000000] {boot}"] if boot else []
    return parse_kernel_log("".join(f"{line}\n" for line in [*head, *(f"[{first:12.6f}] {line}" for line in lines)]))


def told(machine, *lines, **keywords):
    """Return (check, part, severity) of what the node's report lists."""
    verdicts = machine.but(kernel_log=log_of(*lines, **keywords)).judge_all()
    return [(v.check, str(f.part), f.severity) for v in verdicts.values() for f in v.findings if f.severity != "info"]


def test_f10_the_xid_of_an_application_never_fails_a_node(h100):
    """NVIDIA/NVSentinel#911: an Xid 31 of a user's kernel cordoned the node."""
    for code in (13, 31, 43):
        line = f"NVRM: Xid (PCI:0000:52:00): {code}, pid=2924364, name=pt_main_thread, Ch 00000008"
        assert {severity for _, _, severity in told(h100, line)} <= {"warn"}, code


def test_f10_the_clean_up_after_a_job_is_nothing(h100):
    """NVIDIA/NVSentinel#1748: one job's end left thousands of Xid 45 on every GPU of a rack."""
    gpus = h100.values["gpus"]
    lines = [
        f"NVRM: Xid (PCI:{g.address[:-2]}): 45, pid=48211, name=python3, Ch 0000000{n}" for g in gpus for n in "12"
    ]
    assert told(h100, *lines) == []
    assert findings_of("hgx-h100", "host:job-killed")[0] == []


F13 = {
    "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x4)": "warn",
    "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x0)": "reset",
    "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x0)": "warn",
    "149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000 0x00000000)": "warn",
    "145, RLW_REMAP Fatal XC0 i0 Link 03 (0x00000082 0x00000100 0x00000000 0x00000000)": "info",
    "145, RLW_NEW Fatal XC0 i0 Link 03 (0x0000003f 0x00000100 0x00000000 0x00000000)": "warn",
}


@pytest.mark.parametrize(("text", "severity"), F13.items())
def test_f13_the_table_decides_how_grave_an_error_of_nvlink_is(h100, text, severity):
    """leptonai/gpud#1174: a Nonfatal line was taken for fatal, and led to two reboots."""
    (finding,) = h100.but(kernel_log=log_of(f"NVRM: Xid (PCI:0000:52:00): {text}")).judge("xid").findings
    assert (finding.part, finding.severity) == ("gpu2", severity)
    assert "link" in finding.message


def test_f13_a_link_whose_other_end_is_the_suspect_says_so(h100):
    (fatal,) = (text for text in F13 if "0x025001c6" in text)
    (finding,) = h100.but(kernel_log=log_of(f"NVRM: Xid (PCI:0000:52:00): {fatal}")).judge("xid").findings
    assert "other end" in finding.message
    assert "other end" in finding.fix
    assert "link 0" in finding.message


def test_f16_the_noise_of_reading_restricted_devices_is_nothing(h100):
    """leptonai/gpud#1164, #1167: the bridge NICs of a baseboard log each read of their counters."""
    noise = (
        "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, "
        "status bad operation(0x2), syndrome (0x9a6171), err(-22)"
    )
    assert told(h100, *[noise] * 40) == []


def test_f23_a_file_system_that_is_writable_again_only_was_read_only(h100):
    """kubernetes/node-problem-detector#474: the flag of the log stayed until the daemon was restarted."""
    row = "23 1 8:1 / / {} shared:1 - ext4 /dev/sda1 {}\n"
    now = {mode: parse_mounts(f"/proc/self/mountinfo\0{row.format(mode, mode)}\0") for mode in ("rw", "ro")}
    line = "EXT4-fs (sda1): Remounting filesystem read-only"
    assert told(h100.but(mounts=now["rw"]), line) == [("mounts", "/", "warn")]
    assert told(h100.but(mounts=now["ro"]), line) == [("mounts", "/", "fail")]
    assert findings_of("hgx-h100", "host:was-read-only")[0] == [("mounts", "/scratch", "warn")]


OFF_THE_BUS = "NVRM: Xid (PCI:0000:52:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_s9_a_log_that_no_longer_reaches_the_boot_is_unknown(h100):
    """NVIDIA/NVSentinel#1532, #1417: the Xid came before the watcher, or the log had been rotated."""
    log = log_of("usb 1-1: new high-speed USB device", boot="", first=400.0)
    assert h100.but(kernel_log=log).judge("xid").status == "unknown"


def test_s9_an_early_xid_counts(h100):
    asked = "NVRM: Xid (PCI:0000:52:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    machine = h100.with_gpu(2, recovery_action="Reboot")
    assert told(machine, OFF_THE_BUS, asked, first=12.0) == [("xid", "gpu2", "isolate")]


def test_s9_an_xid_of_an_earlier_boot_does_not(h100):
    lines = [f"Nov 23 10:0{n}:00 gpu01 kernel: {text}" for n, text in enumerate((BOOT, OFF_THE_BUS, *["usb 1-1"] * 4))]
    log = parse_kernel_log("".join(f"{line}\n" for line in [*lines, f"Nov 23 11:00:00 gpu01 kernel: {BOOT}"]))
    assert h100.but(kernel_log=log).judge("xid").findings == ()


def test_s14_a_gpu_off_the_bus_without_an_xid_counts_as_xid_79(h100):
    """NVIDIA/NVSentinel#155, leptonai/gpud#1209: three lines of the driver's probe, and no Xid."""
    lines = (
        "NVRM: The NVIDIA GPU 0000:52:00.0",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    )
    assert told(h100, *lines) == [("xid", "gpu2", "isolate")]
    assert told(h100, lines[0], lines[1], "usb 1-1: new device", "usb 1-1: new device", lines[2]) == []
    assert findings_of("hgx-h100", "gpu2:probe-failed")[0] == [("gpu-lost", "gpu2", "isolate")]


def test_s14_with_an_xid_it_is_told_once(h100):
    gone = "NVRM: GPU 0000:52:00.0: GPU has fallen off the bus."
    assert told(h100, OFF_THE_BUS, gone) == told(h100, gone) == [("xid", "gpu2", "isolate")]


RESET_REQUIRED = (
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) "
    "returned from status @ kernel_channel.c:2827"
)


def test_s17_a_gpu_that_refuses_work_until_a_reset(h100):
    """kubernetes-sigs/dra-driver-nvidia-gpu#982: no Xid, and CUDA says that the device is busy."""
    assert told(h100.with_gpu(2, recovery_action="Reset"), RESET_REQUIRED) == [("xid", "gpu2", "reset")]
    assert told(h100.with_gpus(recovery_action=None), RESET_REQUIRED) == [("xid", "node", "reset")]
    assert told(h100, RESET_REQUIRED) == [("xid", "node", "warn")], "no GPU asks for it now, and nothing shows a reset"
    assert told(h100, RESET_REQUIRED, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05") == []
    recovered = (
        "NVRM: Xid (PCI:0000:52:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    )
    assert told(h100, RESET_REQUIRED, recovered) == []
    assert told(h100, recovered, RESET_REQUIRED) == [("xid", "node", "warn")], "it came after the reset"
    assert findings_of("hgx-h100", "gpu2:reset-required")[0] == [("xid", "gpu2", "reset")]


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU0 nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062)",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required (0x00000062) returned from status @ a.c:9",
        "NVRM: nvAssertOkFailed: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] returned from x @ gpu.c:1",
    ],
)
def test_s17_in_the_words_of_other_drivers(h100, line):
    assert told(h100.with_gpus(recovery_action=None), line) == [("xid", "node", "reset")]


def test_s17_beside_an_xid_it_is_told_once(h100):
    hung = "NVRM: Xid (PCI:0000:52:00): 119, pid=1, name=a, Timeout after 6s of waiting for RPC response from GPU2 GSP!"
    assert told(h100.with_gpu(2, recovery_action="Reset"), hung, RESET_REQUIRED) == [("xid", "gpu2", "reset")]


INIT_FAILED = "NVRM: GPU 0000:52:00.0: RmInitAdapter failed! (0x26:0x56:1474)"


def test_a_gpu_that_the_driver_cannot_initialize_is_named(h100):
    without = h100.seeing(*(gpu for gpu in h100.values["gpus"] if gpu.index != 2))
    verdict = without.but(kernel_log=log_of(INIT_FAILED, INIT_FAILED)).judge("xid")
    assert [(f.part, f.severity) for f in verdict.findings] == [("gpu2", "reboot")]
    assert told(h100, INIT_FAILED) == []
    gone = h100.seeing(error=SmiError("driver-not-loaded", "No devices were found"))
    assert gone.but(kernel_log=log_of(INIT_FAILED)).judge("xid").status == "fail"
    assert findings_of("hgx-h100", "gpu2:init-failed")[0] == [("gpu-count", "gpu2", "isolate")]


@pytest.mark.parametrize(
    "line",
    [
        "12,5009,9184121699,-;{}",
        "user  :notice: [  100.000000] {}",
        "[  100.000000] gpu01 root: {}",
        "[  100.000000] gpu01 root[4242]: {}",
        "[  100.000000] node-problem-detector[77]: {}",
    ],
)
def test_a_line_that_a_program_wrote_does_not_count(h100, line):
    """kubernetes/node-problem-detector#1071: a line that anybody writes to /dev/kmsg."""
    kinds = {"12,": f"6,0,0,-;{BOOT}", "user": f"kern  :notice: [    0.000000] {BOOT}"}
    head = kinds.get(line[:3]) or kinds.get(line[:4]) or f"[    0.000000] gpu01 kernel: {BOOT}"
    log = parse_kernel_log(f"{head}\n{line.format(OFF_THE_BUS)}\n")
    assert h100.but(kernel_log=log).judge("xid").findings == ()


class TestDoneSince:
    HUNG = "NVRM: Xid (PCI:0000:52:00): 119, pid=1, name=a, Timeout after 6s of waiting for RPC response from GPU2 GSP!"
    LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.16  Release Build"
    ASKED = "NVRM: Xid (PCI:0000:52:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    WELL = "NVRM: Xid (PCI:0000:52:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"

    def test_a_reset_that_was_done_is_not_asked_for_again(self, h100):
        assert told(h100, self.HUNG, self.ASKED, self.WELL) == []
        assert told(h100, self.HUNG, self.LOADED) == []
        assert findings_of("hgx-h100", "gpu2:recovered")[0] == findings_of("hgx-h100", "host:driver-reloaded")[0] == []

    def test_what_came_after_it_counts(self, h100):
        assert told(h100, self.LOADED, self.HUNG) == [("xid", "gpu2", "reset")]
        assert told(h100, self.ASKED, self.WELL, self.HUNG) == [("xid", "gpu2", "reset")]

    def test_not_on_a_gpu_that_still_asks(self, h100):
        asking = h100.with_gpu(2, recovery_action="Reset")
        assert told(asking, self.HUNG, self.LOADED) == [("xid", "gpu2", "reset")]

    def test_not_on_another_gpu(self, h100):
        assert told(h100, self.HUNG, self.WELL.replace("52:00", "c3:00")) == [("xid", "gpu2", "reset")]

    def test_a_gpu_that_came_back_to_the_bus_warns(self, h100):
        assert told(h100, OFF_THE_BUS, self.LOADED) == [("xid", "gpu2", "warn")]
        gone = h100.seeing(*(gpu for gpu in h100.values["gpus"] if gpu.index != 2))
        assert told(gone, OFF_THE_BUS, self.LOADED) == [("gpu-count", "gpu2", "isolate")]

    def test_a_gpu_that_asks_is_one_finding_with_its_cause(self, h100):
        asking = h100.with_gpu(2, recovery_action="Reset")
        assert told(asking, self.HUNG, self.ASKED) == [("xid", "gpu2", "reset")]
        verdict = asking.but(kernel_log=log_of(self.HUNG, self.ASKED)).judge_all()["xid"]
        assert [f.code for f in verdict.findings if f.severity != "info"] == ["119"]

    def test_a_gpu_that_asks_for_more_than_its_error_does_raises_it(self, h100):
        contained = "NVRM: Xid (PCI:0000:52:00): 94, pid=7194, name=a, Contained: CE User Channel (0x9)."
        asking = h100.with_gpu(2, recovery_action="Drain and Reset", ecc_uncorrected_volatile=None)
        drain = self.ASKED.replace("0x1 (GPU Reset Required)", "0x4 (Drain and Reset)")
        assert told(asking, contained, drain) == [("xid", "gpu2", "reset")]
        user = "NVRM: Xid (PCI:0000:52:00): 31, pid=7194, name=a, Ch 00000008"
        assert told(asking, user, drain) == [("recovery-action", "gpu2", "reset"), ("xid", "gpu2", "warn")]


class TestNvlink:
    FATAL = "NVRM: Xid (PCI:0000:52:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)"
    EFFECT = "NVRM: Xid (PCI:0000:{}:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001)"

    def test_one_broken_link_is_one_finding_of_the_node(self, h100):
        others = [self.EFFECT.format(gpu.address[5:7]) for gpu in h100.values["gpus"]]
        assert told(h100, *others, self.FATAL) == [("xid", "gpu2", "reset")]
        assert len(told(h100, *others)) == 8

    def test_two_broken_gpus_are_both_named(self, h100):
        second = self.FATAL.replace("52:00", "c3:00")
        effect = self.EFFECT.format("1b")
        assert [part for _, part, _ in told(h100, self.FATAL, second, effect)] == ["gpu2", "gpu5", "gpu0"]

    @pytest.mark.parametrize(
        ("registers", "times", "severity"),
        [
            ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", 1, "warn"),
            ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", 2, "reset"),
            ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", 2, "warn"),
            ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", 3, "reset"),
            ("0x800000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", 5, "info"),
            ("0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", 1, "reset"),
        ],
    )
    def test_the_registers_of_74_decide_while_the_link_is_unknown(self, h100, registers, times, severity):
        text = f"pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14({registers})"
        line = f"NVRM: Xid (PCI:0000:52:00): 74, {text}"
        machine = h100.but(nvlink=h100.values["nvlink"][:2], kernel_log=log_of(*[line] * times))
        (finding,) = machine.judge("xid").findings
        assert finding.severity == severity

    @pytest.mark.parametrize(
        ("fault", "severity"),
        [
            ("nvlink-event=4", "reset"),
            ("nvlink-event=37", "reset"),
            ("nvlink-event=38", "warn"),
            ("nvlink-ber", "warn"),
        ],
    )
    def test_the_labs_faults_are_named_once(self, fault, severity):
        assert findings_of("hgx-h100", f"gpu2:{fault}")[0] == [("xid", "gpu2", severity)]


@pytest.mark.parametrize("machine", names())
def test_a_healthy_lab_host_has_no_finding(machine):
    assert findings_of(machine)[0] == []
    undeclared = {"power-supply": bool(healthy(machine).power), "gpu-count": "gpu.count" not in load(machine).values}
    assert silent(machine) == {"clock", *(check for check, is_so in undeclared.items() if is_so)}
