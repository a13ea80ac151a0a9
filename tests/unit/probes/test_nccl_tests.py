import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nccl_tests import PrintedRank, parse_nccl_tests
from gpuops.probing import Unknown

START = """\
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid    901 on node-a device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid    902 on node-b device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
SMALL = "  1048576   262144  float   sum    -1    40.11   26.14   26.14      0    40.32   26.01   26.01      0\n"
LARGE = "  2097152   524288  float   sum    -1    60.02   34.94   34.94      0    59.88   35.02   35.02      0\n"
END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 30.5275\n#\n"
LOG = START + SMALL + LARGE + END
OLD = """\
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    40.11   26.14   26.14  5e-07    40.32   26.01   26.01  5e-07
"""
SAID = """\
node-a:901:933 [0] NCCL INFO Using network IB
node-b:902:934 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0(1)/GDRDMA(PCI)
"""


def only(text):
    (run,) = parse_nccl_tests(text)
    return run


def test_a_run_is_its_rows_its_ranks_and_its_last_lines():
    run = only(LOG)
    assert [row.size_bytes for row in run.rows] == [1048576, 2097152]
    assert run.largest.out_of_place.busbw_gb_per_s == 34.94
    assert run.largest.in_place.time_us == 59.88
    assert run.ranks[1] == PrintedRank(1, "node-b", 0, "0000:1b:00", "NVIDIA H100 80GB HBM3")
    assert (run.average_gb_per_s, run.out_of_bounds, run.wrong, run.complete) == (30.5275, 0, False, True)


def test_the_old_columns_are_read_by_their_header():
    run = only(OLD + END)
    assert run.rows[0].out_of_place.busbw_gb_per_s == 26.14
    assert run.rows[0].in_place.check == 5e-07
    assert not run.wrong


@pytest.mark.parametrize("tag", ["0: ", " 12: ", "[1,0]<stdout>:", "[prterun-node-a-12@1,0]<stdout>: "])
def test_what_a_launcher_puts_before_each_line_is_passed_over(tag):
    assert only("".join(f"{tag}{line}\n" for line in LOG.splitlines())) == only(LOG)


def test_a_column_of_iterations_may_follow():
    text = START.replace("#wrong\n", "#wrong  #iters\n") + SMALL.replace("0\n", "0     20\n") + END
    assert only(text).rows == only(START + SMALL + END).rows


def test_lines_of_nccl_between_the_rows_are_passed_over():
    assert only(START + SMALL + SAID + LARGE + END).rows == only(LOG).rows


def test_several_runs_stay_apart():
    first, second = parse_nccl_tests(LOG + "$ all_reduce_perf -g 2\n" + START + SMALL)
    assert (len(first.rows), first.complete) == (2, True)
    assert (len(second.rows), second.complete, second.average_gb_per_s) == (1, False, None)


def test_without_its_last_lines_a_run_is_not_complete():
    assert not only(START + SMALL + LARGE).complete
    assert not only(START + SMALL + "# Out of bounds values : 0 OK\n").complete


@pytest.mark.parametrize(
    "text",
    [
        START + SMALL.replace("      0    40", "     17    40") + END,
        START + SMALL.replace("0\n", "3\n") + END,
        LOG.replace("0 OK", "2 FAILED"),
        LOG.replace("0 OK", "0 FAILED"),
        OLD + END.replace("0 OK", "4 FAILED"),
    ],
)
def test_wrong_sums_are_told_by_a_row_or_by_the_last_lines(text):
    assert only(text).wrong


def test_what_was_not_checked_is_not_right_either():
    run = only(LOG.replace("      0 ", "    N/A ").replace("      0\n", "    N/A\n"))
    assert run.rows[0].out_of_place.check is None
    assert not run.wrong


@pytest.mark.parametrize("text", ["", START, "mpirun: command not found\n", END, LOG.replace("float", "")])
def test_a_log_without_rows_is_unknown(text):
    assert isinstance(parse_nccl_tests(text), Unknown)


@pytest.mark.parametrize("cell", ["nan", "inf", "-", "1e999", "٣", "4_0"])
def test_a_damaged_number_costs_its_row(cell):
    assert [row.size_bytes for row in only(LOG.replace("40.11", cell)).rows] == [2097152]


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_nccl_tests(text), Unknown)


@given(st.integers(min_value=0, max_value=len(LOG)))
def test_a_cut_log_has_fewer_rows_and_is_not_complete(length):
    value = parse_nccl_tests(LOG[:length])
    if not isinstance(value, Unknown):
        (run,) = value
        assert run.rows == only(LOG).rows[: len(run.rows)]
        assert not run.complete or length > LOG.index("# Avg")


@given(st.integers(min_value=0, max_value=len(LOG) - 1), st.characters(codec="utf-8"))
def test_a_damaged_character_never_raises(place, character):
    assert isinstance(parse_nccl_tests(LOG[:place] + character + LOG[place + 1 :]), (tuple, Unknown))


@given(st.lists(st.sampled_from(LOG.splitlines(keepends=True) + SAID.splitlines(keepends=True))))
def test_lines_in_any_order_never_raise(lines):
    assert isinstance(parse_nccl_tests("".join(lines)), (tuple, Unknown))


OLD_RUN = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid    746 on 9a417caaf03b device  0 [0x4f] Tesla V100-SXM2-16GB
#   Rank  1 Pid    746 on 9a417caaf03b device  1 [0x50] Tesla V100-SXM2-16GB
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144   float     sum    192.4    5.45   10.22  {0}    193.6    5.42   10.16  {0}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 10.19
"""
"""Releases 2.0 to 2.12 print no root, and the largest error: NVIDIA/nccl-tests issues 107, 118 and 176, and the
README of NVIDIA/deepops for ``N/A`` without a check."""


@pytest.mark.parametrize(("error", "check"), [("1e-07", 1e-7), ("0e+00", 0.0), ("4e+00", 4.0), ("  N/A", None)])
def test_old_columns_without_a_root_are_read(error, check):
    run = only(OLD_RUN.format(error))
    assert (run.largest.in_place.busbw_gb_per_s, run.largest.out_of_place.check) == (10.16, check)
    assert (run.complete, run.wrong, [rank.bus for rank in run.ranks]) == (True, False, ["0x4f", "0x50"])


@pytest.mark.parametrize("error", ["  nan", " -nan", "  inf", " -inf"])
def test_an_error_that_is_no_finite_number_is_a_wrong_sum(error):
    """NaN exceeds no threshold, so such a release counts it as OK."""
    run = only(OLD_RUN.format(error))
    assert (run.largest.out_of_place.busbw_gb_per_s, run.wrong) == (10.22, True)
