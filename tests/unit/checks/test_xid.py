import pytest

from gpuops.probes.host.kernel_log import Aer, KernelLog, Xid
from gpuops.probes.host.kernel_messages import Message
from gpuops.probes.nvidia.nvidia_smi import RemappedRows
from gpuops.probes.nvidia.nvlink import NvLink
from gpuops.probing import Unknown

GPU2 = "0000:52:00.0"


def xid(code, address=GPU2, text="", seconds=100.0):
    return Xid(address, code, text, seconds)


def test_a_whole_log_without_xid_passes(h100):
    assert h100.with_log(Aer(GPU2, "corrected", "")).judge("xid").status == "pass"


def test_a_log_that_lost_its_beginning_is_unknown(h100):
    verdict = h100.with_log(reaches_boot=False).judge("xid")
    assert verdict.status == "unknown"
    assert "boot" in verdict.why


def test_what_is_in_such_a_log_counts_all_the_same(h100):
    assert h100.with_log(xid(79), reaches_boot=False).judge("xid").status == "fail"


def test_a_log_that_needs_root_says_so(h100):
    verdict = h100.but(kernel_log=Unknown("Operation not permitted", needs_root=True)).judge("xid")
    assert (verdict.status, verdict.needs_root) == ("unknown", True)


@pytest.mark.parametrize(
    ("code", "severity"),
    [(43, "info"), (45, "info"), (13, "warn"), (31, "warn"), (48, "reset"), (79, "isolate"), (64, "isolate")],
)
def test_the_code_decides_the_severity(h100, code, severity):
    rows = RemappedRows(0, 8, pending=False, failure=True)
    machine = h100.with_gpu(2, ecc_uncorrected_volatile=1, remapped_rows=rows).with_log(xid(code))
    (finding,) = machine.judge("xid").findings
    assert (finding.severity, finding.code, finding.part) == (severity, str(code), "gpu2")
    assert finding.fix
    assert finding.part_label == h100.values["gpus"][2].label
    assert finding.message.endswith("), 0:01:40 after boot")


LINK = "NVLink: fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
RECOVERY = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"


@pytest.mark.parametrize(
    ("event", "severity", "state"),
    [
        (xid(63), "info", "nothing waits for a reset now"),
        (xid(64), "warn", "no remapping waits or has failed now"),
        (xid(48), "info", "its count of uncorrected errors is 0 now"),
        (xid(95), "info", "its count of uncorrected errors is 0 now"),
        (xid(94), "warn", "its count of uncorrected errors is 0 now"),
        (xid(154, text=RECOVERY), "info", "the GPU asks for nothing now"),
        (xid(74, text=LINK), "warn", "the link is up now"),
    ],
)
def test_no_reset_is_asked_for_again_when_the_state_of_the_gpu_shows_that_it_was_done(h100, event, severity, state):
    gpu = {"recovery_action": "None", "ecc_uncorrected_aggregate": 1}
    (finding,) = h100.with_gpu(2, **gpu).with_log(event).judge("xid").findings
    assert (finding.severity, finding.part) == (severity, "gpu2")
    assert finding.message.endswith(f" after boot; {state}")
    assert "reset" not in finding.fix


@pytest.mark.parametrize(
    ("event", "severity", "state"),
    [
        (xid(63), "warn", {"remapped_rows": RemappedRows(1, 0, pending=True, failure=False)}),
        (xid(63), "warn", {"remapped_rows": None}),
        (xid(63), "warn", {"remapped_rows": None, "retired_pages_pending": True}),
        (xid(64), "isolate", {"remapped_rows": RemappedRows(1, 0, pending=True, failure=False)}),
        (xid(64), "isolate", {"remapped_rows": None}),
        (xid(48), "reset", {"ecc_uncorrected_volatile": None}),
        (xid(95), "reset", {"ecc_uncorrected_volatile": 3}),
        (xid(154, text=RECOVERY), "reset", {"recovery_action": "GPU Reset"}),
        (xid(154, text=RECOVERY), "reset", {"recovery_action": None}),
        (xid(74, text="NVLink: a fatal error"), "reset", {}),
    ],
)
def test_a_reset_is_asked_for_as_long_as_the_state_asks_or_is_not_known(h100, event, severity, state):
    (finding,) = h100.with_gpu(2, **state).with_log(event).judge("xid").findings
    assert finding.severity == severity


@pytest.mark.parametrize(
    ("registers", "times", "severity"),
    [
        ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", 1, "warn"),
        ("0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0", 2, "reset"),
        ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", 2, "warn"),
        ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", 3, "reset"),
    ],
)
def test_a_link_that_fails_again_is_hardware_though_it_is_up_now(h100, registers, times, severity):
    text = f"NVLink: fatal error detected on link 14({registers})"
    events = [xid(74, text=text, seconds=100.0 * n) for n in range(times)]
    (finding,) = h100.with_log(*events).judge("xid").findings
    assert (finding.severity, finding.part) == (severity, "gpu2")
    assert ("field diagnosis; if it comes back" in finding.fix) == (severity == "reset")


def test_a_broken_link_counts_also_before_another_error(h100):
    repeated = "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
    other = "NVLink: fatal error detected on link 2(0x100, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
    events = [xid(74, text=text, seconds=100.0 * n) for n, text in enumerate((repeated, repeated, other))]
    (finding,) = h100.with_log(*events).judge("xid").findings
    assert finding.severity == "reset"


@pytest.mark.parametrize("code", [48, 95])
@pytest.mark.parametrize(
    ("state", "severity"),
    [
        ({"recovery_action": None}, "warn"),  # a GPU whose system processor stopped counts nothing any more
        ({"recovery_action": None, "ecc_uncorrected_aggregate": 1}, "info"),
        ({"recovery_action": "None"}, "warn"),
        ({"recovery_action": "None", "ecc_uncorrected_aggregate": None}, "info"),
    ],
)
def test_counters_that_never_counted_an_error_do_not_settle_it(h100, code, state, severity):
    (finding,) = h100.with_gpu(2, **state).with_log(xid(code)).judge("xid").findings
    assert (finding.severity, finding.part) == (severity, "gpu2")
    assert ("no counter of the GPU shows it" in finding.message) == (severity == "warn")


def test_a_link_that_is_up_again_keeps_what_its_registers_ask_for(h100):
    (finding,) = h100.with_log(xid(74, text=LINK)).judge("xid").findings
    assert finding.fix == "if it repeats, reseat the link's two ends and run a field diagnosis"


def test_a_gpu_that_answers_after_a_failed_start_is_information(h100):
    failed = Message("init-failed", GPU2, f"NVRM: GPU {GPU2}: RmInitAdapter failed! (0x62:0x55:2477)", 9.0, 12)
    (finding,) = h100.but(kernel_log=KernelLog(reaches_boot=True, messages=(failed,))).judge("xid").findings
    assert (finding.severity, finding.part, finding.code) == ("info", "gpu2", "init-failed")


def test_a_retired_page_that_waits_for_nothing_is_past(h100):
    machine = h100.with_gpu(2, remapped_rows=None, retired_pages_pending=False)
    (finding,) = machine.with_log(xid(63)).judge("xid").findings
    assert finding.severity == "info"


def test_a_link_that_is_down_asks_for_the_reset(h100):
    links = tuple(NvLink(n, None if n == 4 else 26.562) for n in range(18))
    (finding,) = h100.with_links_of(2, *links).with_log(xid(74, text=LINK)).judge("xid").findings
    assert finding.severity == "reset"


def test_repeated_errors_are_one_finding(h100):
    verdict = h100.with_log(xid(31), xid(31, seconds=205.4), xid(31, "0000:c3:00.0"), xid(48)).judge("xid")
    assert [(f.part, f.code) for f in verdict.findings] == [("gpu2", "31"), ("gpu5", "31"), ("gpu2", "48")]
    assert "2 times, last 0:03:25 after boot" in verdict.findings[0].message


def test_the_text_decides_where_the_driver_says_what_to_do(h100):
    text = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    (finding,) = h100.with_gpu(2, recovery_action="Reboot").with_log(xid(154, text=text)).judge("xid").findings
    assert finding.severity == "reboot"


def test_a_gpu_is_numbered_by_its_place_on_the_bus_where_nvidia_smi_is_silent(h100):
    machine = h100.with_log(xid(79)).without_smi("gpu-lost", "GPU is lost")
    (finding,) = machine.judge("xid").findings
    assert (finding.part, finding.part_label) == ("gpu2", f"GPU 2 ({GPU2})")


def test_a_gpu_that_nothing_lists_keeps_its_address(h100):
    (finding,) = h100.with_log(xid(79, "0000:ee:00.0")).judge("xid").findings
    assert finding.part == "0000:ee:00.0"
