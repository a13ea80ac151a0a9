"""Public cases in which a tool accused a good host or passed a bad one, each with the verdict that is right.

Names are changed, values are the cases': see the thread in each test.
"""

import json

import pytest

from gpuops.catalogue import Catalogue
from gpuops.probes.host.bmc import bmc_events
from gpuops.probes.nvidia.dcgm_diag import dcgm_diag
from gpuops.probing import Unknown
from gpuops.shell import Command, Completed

HEAD = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.3.5                                          |
| GPU Device IDs Detected   | 20b5,20b5,20b5,20b5                            |
|-----  Deployment  --------+------------------------------------------------|
| Denylist                  | Pass                                           |
| Inforom                   | Pass                                           |
"""
END = "+---------------------------+------------------------------------------------+\n"


def table(*rows):
    return HEAD + "".join(f"| {left:<25} | {right:<46} |\n" for left, right in rows) + END


def diagnosis(*results):
    tests = [
        {"name": name, "results": [{"entity_id": 2, "status": status, "warnings": [{"warning": w} for w in warnings]}]}
        for name, status, *warnings in results
    ]
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}})


def judged(h100, out, status=0, err=""):
    answer = dcgm_diag.read(Completed("n1", dcgm_diag.question, status, out, err))
    return h100.but(dcgm_diag=answer).judge("dcgm-diagnosis")


def test_f9_a_host_engine_that_does_not_answer_is_unknown(h100):
    # aws/eks-node-monitoring-agent, issues 266 and 275
    words = "Error: unable to establish a connection to the specified host: localhost\n"
    verdict = judged(h100, words, 251)
    assert verdict.status == "unknown"
    assert "unable to establish a connection" in verdict.why
    machine = h100.but(dcgm_diag=Unknown("dcgmi diag exited with 251"))
    assert [v.check for v in machine.judge_all().values() if v.status == "unknown"] == ["dcgm-diagnosis", "gpu-speed"]


@pytest.mark.parametrize(("seconds", "status"), [("0.0", "warn"), ("0.9", "warn"), ("41.0", "fail")])
def test_f12_a_thermal_violation_of_no_seconds_warns(h100, seconds, status):
    # NVIDIA/DCGM, issue 242
    words = f"GPU 2 Thermal violations totaling {seconds} seconds started at 30.0 seconds into the test for GPU 2"
    assert judged(h100, diagnosis(("targeted_power", "Fail", words)), 226).status == status


@pytest.mark.parametrize("status", [126, 127])
@pytest.mark.parametrize("probe", Catalogue().probes().values(), ids=lambda p: p.name)
def test_f18_a_tool_that_is_missing_is_neither_a_fault_nor_a_pass(probe, status):
    # Azure/az-hop, issue 1796: a missing tool accused every node
    if isinstance(probe.question, Command):
        answer = probe.read(Completed("n1", probe.question, status, "", "sh: not found\n"))
        assert isinstance(answer, Unknown) or not any(vars(answer).values() if hasattr(answer, "__dict__") else ())


def test_f18_checks_of_the_missing_tool_are_unknown(h100):
    gone = {p.name: p.read(Completed("n1", p.question, 127, "", "")) for p in Catalogue().probes().values()}
    missing = h100.but(**{name: gone[name] for name in ("gpus", "bmc_sensors", "disks")})
    assert {missing.judge(name).status for name in ("temperature", "bmc", "disk-space")} == {"unknown"}
    assert "ipmitool is not installed" in missing.judge("bmc").why


def test_f24_a_bandwidth_that_was_measured_too_early_warns(h100):
    # NVIDIA/DCGM, issue 272: nvbandwidth right after the burn
    busy = "nvbandwidth failed: MCUTIL > 10%"
    verdict = judged(h100, diagnosis(("diagnostic", "Pass"), ("nvbandwidth", "Fail", busy)), 226)
    assert (verdict.status, [f.part for f in verdict.findings]) == ("warn", ["gpu2"])


def test_s3_a_failed_row_under_a_banner_of_success_fails(h100):
    # IBM/autopilot, issue 68
    verdict = judged(h100, table(("PCIe", "Fail - All"), ("GPU Memory", "Pass - All")))
    assert verdict.status == "fail"
    assert [f.message for f in verdict.findings] == ["dcgmi diag: PCIe fails"]


def test_s4_tests_that_did_not_run_are_unknown(h100):
    # NVIDIA/DCGM, issue 55
    verdict = judged(
        h100, table(("PCIe", "Skip - All"), ("GPU Memory", "Skip - All"), ("Targeted Stress", "Skip - All"))
    )
    assert verdict.status == "unknown"
    assert "PCIe" in verdict.why


def test_s4_a_test_that_few_machines_can_run_may_be_skipped(h100):
    # its twin: a healthy HGX H100 under DCGM 3.2
    rows = (("PCIe", "Pass - All"), ("GPU Memory", "Pass - All"), ("EUD Test", "Skip - All"))
    assert judged(h100, table(*rows)).status == "pass"


def test_s7_a_pass_with_the_text_of_an_error_is_unknown(h100):
    # NVIDIA/DCGM, issue 284
    words = "Couldn't allocate at least 75.0% of GPU memory on GPU 2"
    verdict = judged(h100, diagnosis(("memory", "Pass", words)))
    assert verdict.status == "unknown"
    assert words in verdict.why


class TestS19:
    def test_a_log_that_is_missing_is_unknown(self, h100):
        # Azure/azurehpc-health-checks, azure_gpu_xid.nhc returns 0
        assert h100.but(kernel_log=Unknown("the kernel log cannot be read")).judge("xid").status == "unknown"

    def test_no_question_clears_the_event_log(self):
        # facebookresearch/gcm, check_ipmitool.py clears it above 40 lines
        words = [p.question.words for p in Catalogue().probes().values() if isinstance(p.question, Command)]
        assert not [each for each in words if "clear" in " ".join(each)]
        assert bmc_events.question.words == ("ipmitool", "sel", "elist")

    def test_a_failed_question_is_not_an_empty_list(self, h100):
        # nebius/soperator, alloc_gpus_busy: nvidia-smi's failure reads as "nobody uses the GPU"
        for probe in Catalogue().probes().values():
            if isinstance(probe.question, Command):
                answer = probe.read(Completed("n1", probe.question, 1, "", "failed\n"))
                assert answer not in ((), {}, []), probe.name
        assert h100

    def test_a_result_that_nobody_mapped_is_reported(self, h100):
        # NVIDIA/NVSentinel, pull request 1826
        assert judged(h100, diagnosis(("memory", "Degraded"))).status == "unknown"
        assert judged(h100, table(("PCIe", "Perhaps"))).status == "unknown"


class TestSeverity:
    """DCGM's own severity: persistence mode that is off does not send a GPU back."""

    @pytest.mark.parametrize(
        ("number", "severity"), [(1, "warn"), (2, "isolate"), (4, "fail"), (5, "fail"), (6, "reset"), (99, "isolate")]
    )
    def test_it_decides(self, h100, number, severity):
        warning = {"warning": "Persistence mode for GPU 0 is disabled.", "error_id": 29, "error_severity": number}
        results = [{"entity_id": 0, "status": "Fail", "warnings": [warning]}]
        tests = [{"name": "memory", "results": results}]
        out = json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}})
        assert [f.severity for f in judged(h100, out, 226).findings] == [severity]

    def test_a_failed_row_of_software_fails(self, h100):
        out = table(("Persistence Mode", "Fail"), ("PCIe", "Fail - GPU: 1"))
        assert [(f.part, f.severity) for f in judged(h100, out).findings] == [("node", "fail"), ("gpu1", "isolate")]
