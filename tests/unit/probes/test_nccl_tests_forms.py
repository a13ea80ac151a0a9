"""Every form that nccl-tests 2.13 to 2.19 prints.

The specimens whose names begin with a release were recorded from its own programs, which ran with stand-ins for the
CUDA runtime and NCCL; those without a driver ran with the real ones. Numbers that the stand-ins cannot cause (wrong
values, the last error) were written into them.
"""

import pytest
from tests.recorded import HERE

from gpuops.catalogue import Catalogue
from gpuops.probes.nvidia.nccl_tests import parse_nccl_tests
from gpuops.probing import Unknown

FOLDER = HERE / "specimens" / "outputs" / "nccl"
ONE, TWO = ["gpu01", "gpu01"], ["gpu01", "gpu02"]
FORMS = {
    "2.13.0-all-reduce.log": (ONE, 107.32, 107.12),
    "2.13.0-all-gather-without-redop.log": (ONE, 53.63, 53.98),
    "2.13.0-wrong-sums.log": (ONE, 107.42, 107.11),
    "2.13.0-without-mpi.log": (["gpu01"], 0.0, 0.0),
    "2.13.4-cpu-time.log": (ONE, 107.65, 107.29),
    "2.16.9-named-program.log": (ONE, 108.57, 108.48),
    "2.17.3-not-checked.log": (ONE, 106.25, 107.24),
    "2.17.3-report-with-misspelt-keys.json": (["gpu01"], 107.530816, 107.75171),
    "2.17.6-timestamps.log": (ONE, 106.82, 106.58),
    "2.18.5-blocking.log": (ONE, 108.12, 107.75),
    "2.19.6-alltoallv-summary.log": (ONE, 54.57, 54.08),
    "2.19.6-all-columns-interrupted.log": (ONE, 88.49, 92.75),
    "2.19.6-hypercube-without-redop.log": (ONE, 96.03, 96.05),
    "2.19.6-last-error.log": (ONE, 106.97, 107.06),
    "2.19.6-mpi.log": (TWO, 210.96, 214.12),
    "2.19.6-per-iteration.log": (ONE, 78.88, 106.24),
    "2.19.6-report.json": (["gpu01"], 107.530816, 107.75171),
    "2.19.6-report-of-iterations-mpi.json": (TWO, 212.388709, 215.046367),
    "2.19.6-rows-that-nccl-interrupts.log": (TWO, 58.01, 58.00),
    "2.19.6-timestamps-and-memory.log": (ONE, 107.00, 107.24),
    "2.19.6-two-cycles.log": (ONE, 43.30, 57.86),
    "2.19.6-wrong-sums.log": (ONE, 108.12, 108.29),
    "in-place-only.log": (TWO, None, 214.12),
    "kubectl-timestamps-colours.log": (TWO, 210.96, 214.12),
    "out-of-place-only.log": (TWO, 210.96, None),
}
"""The hosts of the ranks, and both bus bandwidths of the largest size, as they stand in the file.

Without MPI, ``-J`` lists only the first rank of a process.
"""
WRONG = {"2.13.0-wrong-sums.log": 4096, "2.19.6-wrong-sums.log": 16777216}
NO_ROWS = [
    "2.13.0-no-driver.log",
    "2.19.6-no-driver.log",
    "2.19.6-no-driver-mpi.log",
    "2.19.6-nccl-failure.log",
    "2.19.6-report-of-a-failure.json",
    "2.19.6-too-few-gpus.log",
]


def text_of(name):
    return (FOLDER / name).read_bytes().decode()


def run_of(name):
    (run,) = parse_nccl_tests(text_of(name))
    return run


def test_every_recorded_form_is_tested():
    recorded = {path.name for path in FOLDER.iterdir() if path.name.startswith("2.")}
    assert recorded == {name for name in (*FORMS, *NO_ROWS) if name.startswith("2.")}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_its_ranks_its_rates_and_its_last_lines(name):
    hosts, out_of_place, in_place = FORMS[name]
    run = run_of(name)
    largest = run.largest
    assert [rank.host for rank in run.ranks] == hosts
    assert (largest.out_of_place.busbw_gb_per_s, largest.in_place.busbw_gb_per_s) == (out_of_place, in_place)
    assert (run.complete, run.wrong, run.out_of_bounds) == (True, name in WRONG, WRONG.get(name, 0))


@pytest.mark.parametrize("name", FORMS)
def test_gpuops_parse_reads_a_form(name):
    assert Catalogue().parse("nccl", text_of(name)) == parse_nccl_tests(text_of(name))


@pytest.mark.parametrize("name", NO_ROWS)
def test_a_run_that_failed_before_its_first_row_is_unknown(name):
    assert isinstance(parse_nccl_tests(text_of(name)), Unknown)


def test_all_columns_of_a_row_that_nccl_interrupts_are_read():
    (row,) = run_of("2.19.6-all-columns-interrupted.log").rows
    assert (row.size_bytes, row.count, row.out_of_place.check, row.in_place.check) == (67108864, 16777216, 0, 0)
    assert (row.out_of_place.time_us, row.in_place.time_us) == (None, None), "this column is CPU time"


def test_cycles_repeat_their_sizes():
    assert [row.size_bytes for row in run_of("2.19.6-two-cycles.log").rows] == [67108864, 134217728] * 2


def test_checks_and_errors_are_read():
    assert run_of("2.19.6-wrong-sums.log").largest.out_of_place.check == 16777200.0, "it is printed as 1.67772e+07"
    assert run_of("2.17.3-not-checked.log").largest.in_place.check is None
    assert run_of("2.19.6-last-error.log").error == "NET/IB : mlx5_0:1 Got async error event: port error"


@pytest.mark.parametrize("name", FORMS)
def test_a_truncated_form_has_no_other_rows(name):
    text, whole = text_of(name), run_of(name)
    for length in range(0, len(text), max(1, len(text) // 60)):
        runs = parse_nccl_tests(text[:length])
        for run in () if isinstance(runs, Unknown) else runs:
            assert run.rows == whole.rows[: len(run.rows)]
            assert not run.complete or text[length:].count("\n") < 8


def test_a_list_of_ranks_that_does_not_fit_is_noticed():
    text = text_of("2.13.0-all-reduce.log")
    cut = text.replace("device  1 [0x43] NVIDIA H100 80GB HBM3", "devi...")
    (run,) = parse_nccl_tests(cut)
    assert (len(run.ranks), run.all_ranks, run_of("2.13.0-all-reduce.log").all_ranks) == (1, False, True)


@pytest.mark.parametrize("damage", ["{", '{"results": 3}', '{"results": [{"size": 1}]}', '{"results": [null]}', "[]"])
def test_a_damaged_report_is_unknown(damage):
    assert isinstance(parse_nccl_tests(damage), Unknown)


def test_blanks_after_the_first_half_are_the_second_one():
    text = text_of("out-of-place-only.log").replace("       0\n", f"       0{'':32}\n")
    assert parse_nccl_tests(text) == parse_nccl_tests(text_of("out-of-place-only.log"))
