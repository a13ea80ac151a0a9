import pytest

from gpuops.probes.nvidia.nvidia_smi import RemappedRows


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


def test_remapped_rows_of_the_past_are_no_fault(h100):
    machine = h100.with_gpu(2, remapped_rows=rows(), ecc_uncorrected_aggregate=4)
    assert machine.findings() == []


def test_ecc_that_is_off_is_told(h100):
    finding = only(h100.with_gpu(2, ecc_mode=False, ecc_uncorrected_volatile=None).judge("ecc-uncorrectable"))
    assert (finding.severity, finding.found) == ("warn", "off")
    assert "-e 1" in finding.fix


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
