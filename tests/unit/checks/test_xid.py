import pytest

from gpuops.probes.host.kernel_log import Aer, Xid
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
    [(43, "info"), (45, "info"), (13, "warn"), (31, "warn"), (48, "reset"), (79, "reboot"), (64, "isolate")],
)
def test_the_code_decides_the_severity(h100, code, severity):
    (finding,) = h100.with_log(xid(code)).judge("xid").findings
    assert (finding.severity, finding.code, finding.part) == (severity, str(code), "gpu2")
    assert finding.fix
    assert finding.part_label == h100.values["gpus"][2].label
    assert finding.message.endswith("), 0:01:40 after boot")


def test_repeated_errors_are_one_finding(h100):
    verdict = h100.with_log(xid(31), xid(31, seconds=205.4), xid(31, "0000:c3:00.0"), xid(48)).judge("xid")
    assert [(f.part, f.code) for f in verdict.findings] == [("gpu2", "31"), ("gpu5", "31"), ("gpu2", "48")]
    assert "2 times, last 0:03:25 after boot" in verdict.findings[0].message


def test_the_text_decides_where_the_driver_says_what_to_do(h100):
    text = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    (finding,) = h100.with_log(xid(154, text=text)).judge("xid").findings
    assert finding.severity == "reboot"


def test_a_gpu_is_numbered_by_its_place_on_the_bus_where_nvidia_smi_is_silent(h100):
    machine = h100.with_log(xid(79)).without_smi("gpu-lost", "GPU is lost")
    (finding,) = machine.judge("xid").findings
    assert (finding.part, finding.part_label) == ("gpu2", f"GPU 2 ({GPU2})")


def test_a_gpu_that_nothing_lists_keeps_its_address(h100):
    (finding,) = h100.with_log(xid(79, "0000:ee:00.0")).judge("xid").findings
    assert finding.part == "0000:ee:00.0"
