import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.network.ib_write_bw import WriteRow, parse_ib_write_bw
from gpuops.probing import Unknown

HEADER = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]\n"
LINE = "-" * 87 + "\n"
TEXT = (
    " Link type       : IB\n"
    + LINE
    + HEADER.format("Gb/sec")
    + " 65536      5000             394.10             393.76\t\t   0.751031\n"
)


def test_a_row_is_a_size_and_its_bandwidths():
    assert parse_ib_write_bw(TEXT) == (WriteRow(65536, 5000, 394.10, 393.76),)


def test_mega_bytes_are_those_of_perftest():
    (row,) = parse_ib_write_bw(TEXT.replace("Gb/sec", "MB/sec").replace("393.76", "46938.90"))
    assert row.average_gbps == pytest.approx(393.75, abs=0.01)


PORTS = "   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (HEADER.format("MiB/sec"), " 65536      5000             0.00               46938.90\t\t   0.751022\n"),
        (
            HEADER.format("Gb/sec").replace("\n", "    CPU_Util[%]\n"),
            " 65536      5000             0.00               393.75\t\t   0.751022\t    12.50\n",
        ),
        (
            HEADER.format("Gb/sec").replace("#iterations", "#sl      #iterations"),
            " 65536      3           5000           0.00               393.75                  0.751022\n",
        ),
        (
            HEADER.format("Gb/sec").replace("\n", PORTS + "\n"),
            " 65536      5000           0.00      393.75\t\t   0.751022   200.01    0.381489     193.74    0.369533\n",
        ),
        (HEADER.format("Gb/sec"), " 65536    5000           0.000000            393.750000            0.751022\n"),
    ],
    ids=["MiB since 24.07", "--cpu_util", "service level", "--report-per-port", "more digits"],
)
def test_every_printed_form_is_read(header, row):
    (found,) = parse_ib_write_bw(LINE + header + row)
    assert (found.size_bytes, found.iterations, found.peak_gbps) == (65536, 5000, 0.0)
    assert found.average_gbps == pytest.approx(393.75, abs=0.01)


def test_a_warning_between_header_and_row_is_passed_over():
    lines = TEXT.splitlines(keepends=True)
    noisy = [*lines[:-1], "Conflicting CPU frequency values detected: 1200.0 != 1251.3.\n", lines[-1]]
    assert parse_ib_write_bw("".join(noisy)) == parse_ib_write_bw(TEXT)


def test_server_and_client_in_one_log_are_two_rows():
    assert len(parse_ib_write_bw(TEXT + "* Waiting for client to connect... *\n" + TEXT)) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no header"),
        ("Couldn't connect to node-b:18515\n", "no header"),
        (LINE + HEADER.format("Gb/sec"), "no results"),
        (TEXT.replace("Gb/sec", "furlong"), 'unknown unit "furlong"'),
        (TEXT.replace("393.76", "nan"), "no results"),
    ],
)
def test_what_measured_nothing_is_unknown_and_says_why(text, why):
    value = parse_ib_write_bw(text)
    assert isinstance(value, Unknown)
    assert why in value.why


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_ib_write_bw(text), Unknown)


@given(st.integers(min_value=0, max_value=len(TEXT)))
def test_a_cut_answer_is_unknown_or_the_same(length):
    value = parse_ib_write_bw(TEXT[:length])
    assert isinstance(value, Unknown) or [row.average_gbps for row in value] == [393.76]
