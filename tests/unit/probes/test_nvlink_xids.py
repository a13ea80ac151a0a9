"""Lines as gpud's and NVSentinel's tests quote them from nodes; rows as in NVIDIA's sheet "XID 144-150 Decode"."""

import pytest

from gpuops.probes.nvidia.nvlink_xids import decode_nvlink, decode_registers, link_of

LINK_EVENT = "NETIR_LINK_EVT Fatal XC0 i0 Link 08 ({:#010x} 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"


def line(unit, information, status, word="Nonfatal", link="03"):
    return f"{unit} {word} XC0 i0 Link {link} ({information:#010x} {status:#010x} 0x00000000 0x00000000)"


@pytest.mark.parametrize(
    ("code", "text", "unit", "verdict", "link"),
    [
        (
            145,
            "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
            "RLW_RXPIPE",
            "report",
            13,
        ),
        (
            149,
            "NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001 0x00000000 0x00000000)",
            "NETIR_BER_EVENT",
            "cables",
            1,
        ),
        (149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000)", "NETIR", "reset", None),
        (
            145,
            "RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x040868e2 0x00000008 0x00000000 0x00000000)",
            "RLW_SRC_TRACK",
            "follow",
            3,
        ),
        (150, line("MSE_WATCHDOG", 0, 0, "Fatal"), "MSE_WATCHDOG", "reset", 3),
    ],
)
def test_lines_of_real_nodes(code, text, unit, verdict, link):
    error = decode_nvlink(code, text)
    assert (error.unit, error.verdict, error.link, error.is_known) == (unit, verdict, link, True)


@pytest.mark.parametrize(
    ("code", "long", "short", "status", "verdict"),
    [
        (144, 0b0000100001, 0b0000001, 0x10, "reset"),
        (144, 0b0000100001, 0b0000001, 0x20, "ignore"),
        (144, 0b0000100001, 0b0000001, 0x8, "report"),
        (145, 0b0001100010, 0b0000011, 0x80000000, "report"),
        (145, 0b0010000010, 0b0000100, 0x40, "reset"),
        (145, 0b0010000010, 0b0000100, 0x100, "ignore"),
        (145, 0b0010000010, 0b0000100, 0x20, "follow-link"),
        (145, 0b0010100010, 0b0000101, 0x2, "reset"),
        (145, 0b0011000010, 0b0000110, 0x4, "may-reset"),
        (145, 0b0011100010, 0b0000111, 0x20, "reset"),
        (145, 0b0100000010, 0b0001000, 0x100000, "reset"),
        (145, 0b0100000010, 0b0001000, 0x10000, "ignore"),
        (146, 0b0100100011, 0b0001001, 0x4, "reset"),
        (146, 0b0101000011, 0b0001011, 0x1, "ignore"),
        (146, 0b0101100011, 0b0001101, 0x2, "report"),
        (147, 0b0110000100, 0b0001110, 0x1, "report"),
        (148, 0b0000000101, 0b0001111, 0x80000000, "report"),
        (149, 0b0000000110, 0b0011000, 0x0, "reset"),
        (149, 0b1000100110, 0b0010011, 0x3, "cables"),
        (149, 0b1001000110, 0b0010100, 0x7, "reset"),
        (149, 0b1001000110, 0b0010100, 0x3, "ignore"),
    ],
)
def test_both_patterns_of_the_unit_lead_to_the_same_row(code, long, short, status, verdict):
    assert decode_nvlink(code, line("NAME", long, status)).verdict == verdict
    assert decode_nvlink(code, line("NAME", short, status)).verdict == verdict


def test_the_table_wins_over_the_word_of_the_line():
    fatal_word = decode_nvlink(145, line("RLW_REMAP", 0b0010000010, 0x100, "Fatal"))
    assert (fatal_word.verdict, fatal_word.is_fatal) == ("ignore", True)
    assert decode_nvlink(145, line("RLW_REMAP", 0b0010000010, 0x40, "Nonfatal")).verdict == "reset"


@pytest.mark.parametrize(
    ("sub_code", "verdict", "suspect"),
    [
        (0, "reset", ""),
        (4, "reset", "link"),
        (15, "reset", "software"),
        (21, "reset", "peer"),
        (32, "reset", "peer"),
        (37, "reset", "peer"),
        (38, "software", "software"),
        (40, "host", "host"),
        (43, "reset", "link"),
    ],
)
def test_the_sub_code_names_the_suspect_of_a_link_that_went_down(sub_code, verdict, suspect):
    error = decode_nvlink(149, LINK_EVENT.format(sub_code << 20 | 0x1C6))
    assert (error.verdict, error.suspect, error.sub_code, error.link) == (verdict, suspect, sub_code, 8)


def test_bits_that_are_set_together_count_as_the_gravest():
    assert decode_nvlink(145, line("RLW_RSPCOL", 0b0010100010, 0x3)).verdict == "reset"
    assert not decode_nvlink(145, line("RLW_RSPCOL", 0b0010100010, 0x10002)).is_known


@pytest.mark.parametrize(
    "text",
    [
        line("NEW_UNIT", 0x3F, 0x1, "Fatal"),
        line("RLW_CTRL", 0b0001100010, 0x1, "Fatal"),
        LINK_EVENT.format(3 << 20 | 0x1C6),
        "NETIR_LINK_EVT Fatal XC0 i0 Link 08",
        "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6",
    ],
)
def test_what_the_table_lacks_is_monitored_and_keeps_the_lines_word(text):
    error = decode_nvlink(149 if "NETIR" in text else 145, text)
    assert (error.is_known, error.is_fatal, error.verdict) == (False, True, "report")


@pytest.mark.parametrize("text", ["", "unknown error", "Fatal", "Link 03 (0x1 0x2)", "RLW_CTRL Fatal Link x (0x1)"])
def test_other_lines_are_not_decoded(text):
    assert decode_nvlink(149, text) is None


def test_other_codes_are_not_decoded():
    assert decode_nvlink(74, LINK_EVENT.format(0x1C6)) is None


def registers(*words, link=14):
    return f"NVLink: fatal error detected on link {link}({', '.join(hex(word) for word in words)})"


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ((0, 0, 0x10000, 0, 0, 0, 0), "repeats"),
        ((0x10000, 0, 0, 0, 0, 0, 0), "reseat"),
        ((1 << 23, 0, 0, 0, 0, 0, 0), "ignore"),
        ((1 << 20, 0, 0, 0, 0, 0, 0), "secondary"),
        ((1 << 4, 0, 0, 0, 0, 0, 0), "parity"),
        ((1 << 21 | 1, 0, 0, 0, 0, 0, 0), "marginal"),
        ((0, 0, 0, 1 << 18, 0, 0, 0), "reset"),
        ((0, 0, 0, 0, 1 << 20, 0, 0), "ignore"),
        ((0, 0, 0, 0, 1 << 28, 0, 0), "parity"),
        ((1 << 20, 0, 0, 0, 1 << 18, 0, 0), "parity"),
    ],
)
def test_the_registers_of_74(words, verdict):
    assert decode_registers(registers(*words)) == (14, verdict)


@pytest.mark.parametrize(
    "text",
    ["NVLink: fatal error detected on link 14", registers(0, 1, 0, 0, 0, 1, 1), registers(1 << 31, 0, 0, 0, 0), ""],
)
def test_registers_that_are_absent_or_unlisted_leave_the_catalogue_to_decide(text):
    assert decode_registers(text) is None


def test_the_link_of_a_text():
    assert link_of("NETIR Fatal XC0 i0 Link 08 (0x0)") == 8
    assert link_of(registers(0)) == 14
    assert link_of("NETIR Fatal XC0 i0 Link -1 (0x0)") is None


def test_the_columns_of_a_driver_are_read():
    line = "SAW_MVB  Nonfatal   XC0 i0 Link 05  (0x00000021 0x00000004 0x00000000 0x00000000 0x00000000 0x00000000)"
    error = decode_nvlink(144, line)
    assert (error.unit, error.link, error.verdict) == ("SAW_MVB", 5, "ignore")
    assert error == decode_nvlink(144, " ".join(line.split()))
