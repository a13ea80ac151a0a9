import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.launched_output import only_nccl, plain_lines, without_nccl

ROW = "     1048576        262144     float     sum      -1   174.50    6.01    6.01       0"
INFO = "gpu01:4100:4177 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE"
WARN = "gpu01:4100:4177 [0] misc/socket.cc:484 NCCL WARN Connect to 10.0.0.2<4321> failed"


@pytest.mark.parametrize(
    "label",
    [
        "0: ",
        " 12: ",
        "[1,0]<stdout>:",
        "[prterun-node-a-12@1,0]<stdout>: ",
        "Sun Nov 22 22:08:15 2026<stdout>:",
        "Sun Nov 22 22:08:15 2026[1,0]<stdout>:",
        "2026-11-22T22:08:15.123456789Z ",
        "2026-11-22T22:08:15+01:00 ",
        "2026-11-22T22:08:15Z [1,0]<stdout>:",
        "[pod/all-reduce-launcher-x7k2p/nccl] ",
        "[pod/all-reduce-launcher-x7k2p/nccl] 2026-11-22T22:08:15.123456789Z 0: ",
        "[0] ",
        "gpu01: ",
        "launcher-1  | ",
        "\x1b[32m",
        "\x1b[0;1m[1,0]<stdout>:\x1b[0m",
        "\x1b]0;title\x07",
    ],
)
@pytest.mark.parametrize(
    "line", [ROW, "#  Rank  0 Group  0 Pid  4100 on      gpu01 device  0 [0000:1b:00] NVIDIA H100"]
)
def test_a_label_is_not_part_of_the_line(label, line):
    assert [bare.lstrip() for bare in plain_lines(f"{label}{line}\r\n")] == [line.lstrip()]


@pytest.mark.parametrize("line", [INFO, WARN, "gpu01: Test CUDA failure common.cu:846 'x'", "2: 3", ""])
def test_other_lines_keep_their_words(line):
    assert plain_lines(line) == ([line.removeprefix("2: ")] if line else [])


@pytest.mark.parametrize("log", [INFO, WARN, f"[2026-11-22 22:08:15] {WARN}", "NCCL version 2.28.9+cuda13.0"])
@pytest.mark.parametrize("part", ["", ROW[:53], ROW, "   170.00    6.15    6.15     N/A", "  170.0  1.2e+07"])
def test_what_nccl_logs_after_a_part_of_a_row_is_cut_off(log, part):
    assert without_nccl(f"{part}{log}") == part
    assert only_nccl(f"{part}{log}").endswith(log)


def test_a_host_name_that_begins_with_a_digit_does_not_hide_wrong_values():
    assert without_nccl(f"  6.15       0{INFO.replace('gpu01', '7gpu')}") == "  6.15       0"


@given(st.text())
def test_any_text_has_lines(text):
    assert all(isinstance(without_nccl(line), str) for line in plain_lines(text))
