from dataclasses import replace

import pytest

from gpuops.probes.nvidia.nvidia_smi import RemappedRows
from gpuops.profile import NO_PROFILE


def only(verdict):
    (finding,) = verdict.findings
    return finding


def rows(*, pending=False, failure=False):
    return RemappedRows(0, 1, pending=pending, failure=failure)


CHECKS = ("ecc-uncorrectable", "row-remap-pending", "row-remap-failed")


@pytest.mark.parametrize("name", CHECKS)
def test_a_healthy_card_passes(h100, name):
    assert h100.judge(name).status == "pass"


@pytest.mark.parametrize("name", CHECKS)
def test_a_card_without_ecc_is_not_judged(titan, name):
    assert titan.judge(name).status == "skipped"
    assert titan.judge(name).why.startswith("NVIDIA TITAN RTX ")


@pytest.mark.parametrize("name", CHECKS)
def test_a_data_centre_card_that_does_not_tell_is_unknown(h100, name):
    silent = h100.with_gpu(2, ecc_uncorrected_volatile=None, remapped_rows=None)
    assert silent.judge(name).status == "unknown"


@pytest.mark.parametrize(
    ("name", "changes", "severity", "fix"),
    [
        ("ecc-uncorrectable", {"ecc_uncorrected_volatile": 3}, "reset", "reset GPU 2 (nvidia-smi --gpu-reset -i 2)"),
        ("row-remap-pending", {"remapped_rows": rows(pending=True)}, "reset", "reset GPU 2"),
        ("row-remap-failed", {"remapped_rows": rows(failure=True)}, "rma", "replace GPU 2"),
    ],
)
def test_a_fault_is_one_finding_on_its_gpu(h100, name, changes, severity, fix):
    finding = only(h100.with_gpu(2, **changes).judge(name))
    assert (finding.part, finding.severity) == ("gpu2", severity)
    assert fix in finding.fix


@pytest.mark.parametrize(("count", "severity"), [(512, "warn"), (513, "rma")])
def test_a_card_that_has_remapped_all_the_rows_it_can_is_a_fault(h100, count, severity):
    rows = RemappedRows(0, count, pending=False, failure=False)
    finding = only(h100.with_gpu(2, remapped_rows=rows).judge("row-remap-failed"))
    assert (finding.part, finding.severity, finding.found) == ("gpu2", severity, count)
    fewer = RemappedRows(511, 511, pending=False, failure=False)
    assert h100.with_gpu(2, remapped_rows=fewer).judge("row-remap-failed").status == "pass"


def test_remapped_rows_of_the_past_are_no_fault(h100):
    machine = h100.with_gpu(2, remapped_rows=rows(), ecc_uncorrected_aggregate=4)
    assert machine.findings() == []


class TestEccMode:
    def test_on_passes_and_machines_without_ecc_are_skipped(self, h100, titan):
        assert h100.judge("ecc-mode").status == "pass"
        assert titan.judge("ecc-mode").status == "skipped"
        assert replace(titan, profile=NO_PROFILE).judge("ecc-mode").status == "skipped"

    def test_off_is_one_finding(self, h100):
        machine = h100.with_gpu(2, ecc_mode=False, ecc_mode_pending=False, ecc_uncorrected_volatile=None)
        machine = machine.with_gpu(2, ecc_corrected_volatile=None)
        assert machine.findings() == [("ecc-mode", "gpu2")]
        finding = only(machine.judge("ecc-mode"))
        assert (finding.severity, finding.found, "-i 2 -e 1" in finding.fix) == ("fail", "off", True)
        assert machine.judge("ecc-uncorrectable").status == "pass"

    def test_a_change_at_the_next_reboot(self, h100):
        assert only(h100.with_gpu(2, ecc_mode=False).judge("ecc-mode")).fix == "reboot"
        assert only(h100.with_gpu(2, ecc_mode_pending=False).judge("ecc-mode")).severity == "warn"

    def test_a_card_that_does_not_tell_is_unknown(self, h100):
        assert h100.with_gpu(2, ecc_mode=None).judge("ecc-mode").status == "unknown"


class TestMemoryThatIsWorn:
    @pytest.mark.parametrize("field", ["sram_threshold_exceeded", "unrepairable_memory"])
    def test_it_takes_the_node_out(self, h100, field):
        machine = h100.with_gpu(2, **{field: True}, ecc_uncorrected_volatile=1, recovery_action="Reset")
        assert machine.findings() == [("memory-unrepairable", "gpu2")]
        finding = only(machine.judge("memory-unrepairable"))
        assert (finding.severity, "GPU 2" in finding.fix) == ("isolate", True)

    def test_what_is_not_told_is_unknown_beside_others_and_else_skipped(self, h100):
        assert h100.with_gpu(2, sram_threshold_exceeded=None).judge("memory-unrepairable").status == "unknown"
        assert h100.with_gpus(sram_threshold_exceeded=None).judge("memory-unrepairable").status == "skipped"

    @pytest.mark.parametrize(("count", "severity"), [(0, ""), (1, "warn"), (4, "warn"), (5, "isolate")])
    def test_errors_count_if_the_driver_knows_no_threshold(self, h100, count, severity):
        machine = h100.with_gpus(sram_threshold_exceeded=None, sram_uncorrected_aggregate=0)
        found = machine.with_gpu(2, sram_uncorrected_aggregate=count).judge("memory-unrepairable").findings
        assert [(f.part, f.severity) for f in found] == ([("gpu2", severity)] if severity else [])
        known = h100.with_gpu(2, sram_uncorrected_aggregate=count)
        assert known.judge("memory-unrepairable").status == "pass"
        assert [f.severity for f in known.judge("memory-unrepairable").findings] == ["info"] * bool(count)

    def test_a_pending_repair_asks_for_a_reset(self, h100):
        machine = h100.with_gpu(2, tpc_repair_pending=True, channel_repair_pending=True, recovery_action="Reset")
        assert machine.findings() == [("repair-pending", "gpu2")]
        finding = only(machine.judge("repair-pending"))
        assert (finding.severity, finding.message) == ("reset", "a channel and a TPC repair is pending")

    def test_a_repair_that_is_not_told_is_unknown_beside_others_and_else_skipped(self, h100):
        assert h100.with_gpu(2, tpc_repair_pending=None).judge("repair-pending").status == "unknown"
        silent = h100.with_gpus(tpc_repair_pending=None, channel_repair_pending=None)
        assert silent.judge("repair-pending").status == "skipped"


class TestCorrectedErrors:
    def test_a_few_are_normal(self, h100):
        assert h100.with_gpu(2, ecc_corrected_volatile=9_999).judge("ecc-corrected").status == "pass"
        assert h100.with_gpus(ecc_corrected_volatile=500_000).judge("ecc-corrected").status == "pass"

    @pytest.mark.parametrize("count", [10_001, 9_600_000_000])
    def test_one_card_far_above_the_others_warns(self, h100, count):
        finding = only(h100.with_gpu(2, ecc_corrected_volatile=count).judge("ecc-corrected"))
        assert (finding.part, finding.severity, finding.found) == ("gpu2", "warn", count)

    def test_the_only_card_has_a_limit_too(self, h100):
        one = h100.seeing(h100.values["gpus"][0])
        assert one.with_gpu(0, ecc_corrected_volatile=20_000_000).judge("ecc-corrected").status == "pass"
        assert only(one.with_gpu(0, ecc_corrected_volatile=20_000_001).judge("ecc-corrected")).part == "gpu0"

    def test_a_card_that_does_not_tell_is_unknown(self, h100, titan):
        assert h100.with_gpu(2, ecc_corrected_volatile=None).judge("ecc-corrected").status == "unknown"
        assert titan.judge("ecc-corrected").status == "skipped"


def test_ecc_that_may_be_off_is_not_judged(titan):
    assert titan.with_gpus(ecc_mode=False).judge("ecc-uncorrectable").status == "skipped"
    assert titan.with_gpus(ecc_mode=True).judge("ecc-uncorrectable").status == "unknown"


def test_older_cards_retire_pages(titan):
    assert titan.with_gpus(retired_pages_pending=False).judge("row-remap-pending").status == "pass"
    assert only(titan.with_gpu(1, retired_pages_pending=True).judge("row-remap-pending")).part == "gpu1"


def test_half_an_answer_is_unknown(h100):
    half = h100.with_gpu(2, remapped_rows=RemappedRows(0, 0, pending=None, failure=None))
    assert half.judge("row-remap-pending").status == "unknown"
    assert half.judge("row-remap-failed").status == "unknown"
