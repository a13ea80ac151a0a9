from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvlink_errors import (
    LinkErrors,
    link_errors,
    nvlink_errors,
    parse_link_errors,
    parse_nvlink_errors,
)
from gpuops.probing import Unknown
from gpuops.shell import Completed

TEXT = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)
\t Link 0: Replay Errors: 0
\t Link 0: CRC Errors: 2

\t Link 1: Replay Errors: 1
\t Link 1: CRC Errors: 3
GPU 1: NVIDIA TITAN RTX (UUID: GPU-1)
"""


def test_errors_are_told_by_gpu_over_all_links():
    assert parse_nvlink_errors(TEXT) == {"gpu0": {"replay_errors": 1, "crc_errors": 5}, "gpu1": {}}


@pytest.mark.parametrize("text", ["", "GPU is lost. Reboot the system to recover this GPU\n", "nothing\n" + TEXT])
def test_what_is_something_else_is_unknown(text):
    assert isinstance(parse_nvlink_errors(text), Unknown)


@given(st.integers(0, len(TEXT) - 1))
def test_a_cut_answer_tells_no_more_than_the_whole(length):
    found, whole = parse_nvlink_errors(TEXT[:length]), parse_nvlink_errors(TEXT)
    assert isinstance(found, Unknown) or TEXT[length - 1] == "\n"
    if not isinstance(found, Unknown):
        assert all(count <= whole[gpu][name] for gpu, counts in found.items() for name, count in counts.items())


def test_a_card_that_refuses_is_unknown(answer):
    assert isinstance(nvlink_errors.read(answer(nvlink_errors, "")), Unknown)


# names and healthy values of a driver 595 on Blackwell, as a public field note of a B300 machine quotes them
BLACKWELL = """\
GPU 0: NVIDIA B300 SXM6 AC (UUID: GPU-0)
\t Link 14: Malformed packet Errors: 0
\t Link 14: Rx remote Errors: 0
\t Link 14: Tx discards: 0
\t Link 14: Link recovery successful events: 505
\t Link 14: Link recovery failed events: 0
\t Link 14: Total link recovery events: 505
\t Link 14: Effective Errors: 0
\t Link 14: Effective BER: 15e-255
\t Link 14: Symbol BER: 15e-255
\t Link 14: FEC Errors - 0: 36140749276
\t Link 14: FEC Errors - 15: 0
\t Link 14: Raw BER Lane 0: 2061
\t Link 14: Raw Errors Lane 1: 412008
\t Link 15: <inactive>
"""


def test_blackwells_counters_are_told_by_link():
    (link,) = parse_link_errors(BLACKWELL)["gpu0"].values()
    assert link.recoveries == 505
    assert link.rates == {"effective_ber": 15e-255, "symbol_ber": 15e-255}
    assert set(link.counts) == {
        *("malformed_packet_errors", "rx_remote_errors", "tx_discards", "effective_errors"),
        *("link_recovery_successful_events", "link_recovery_failed_events", "total_link_recovery_events"),
    }
    assert parse_nvlink_errors(BLACKWELL)["gpu0"]["total_link_recovery_events"] == 505


def test_links_of_hopper_count_recoveries_under_another_name():
    assert parse_link_errors(TEXT.replace("Replay", "Recovery"))["gpu0"][1].recoveries == 1
    assert LinkErrors({"crc_errors": 1}).recoveries is None


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: NVIDIA X (UUID: GPU-0)\n\t Link 0: Bananas: 3\n",
        "GPU 0: NVIDIA X (UUID: GPU-0)\n\t Link 0: CRC Errors: Unknown Error\n",
        "GPU 0: NVIDIA X (UUID: GPU-0)\n\t Link 0: Effective BER: ERR!\n",
        "\t Link 0: CRC Errors: 3\n",
    ],
)
def test_counters_of_other_names_and_other_values_are_unknown(text):
    assert isinstance(parse_link_errors(text), Unknown)


def test_a_counter_that_does_not_apply_is_left_out():
    text = "GPU 0: NVIDIA X (UUID: GPU-0)\n\t Link 0: CRC Errors: 3\n\t Link 0: Replay Errors: N/A\n"
    assert parse_link_errors(text)["gpu0"][0].counts == {"crc_errors": 3}


@given(st.text(max_size=80), st.sampled_from([TEXT, BLACKWELL]), st.integers(0, 400))
def test_any_text_is_read(noise, text, at):
    found = parse_link_errors(text[:at] + noise + text[at:])
    assert isinstance(found, (Unknown, dict))


def answer(out, code, err=""):
    return Completed("gpu01", link_errors.question, code, out, err)


@pytest.mark.parametrize(
    "last", ["Unable to retrieve NVLink error counters: GPU is lost\n", "\t NVML: Unknown Error\n", ""]
)
def test_links_that_were_read_before_nvidia_smi_failed_count(last):
    links = link_errors.read(answer(TEXT + last, 255))
    assert links["gpu0"] == parse_link_errors(TEXT)["gpu0"]
    assert isinstance(links["gpu1"], Unknown), "its links may be missing"
    assert last.strip() in links["gpu1"].why
    assert isinstance(nvlink_errors.read(answer(TEXT + last, 255)), Unknown)


def test_nothing_counts_if_nvidia_smi_failed_at_its_first_gpu():
    links = link_errors.read(answer("GPU 0: NVIDIA X (UUID: GPU-0)\n", 15, "GPU is lost\n"))
    assert links == Unknown("nvidia-smi nvlink -e exited with 15: GPU is lost")
    assert isinstance(link_errors.read(answer("", 127)), Unknown)
    assert isinstance(link_errors.read(replace(answer(TEXT, 0), truncated=True)), Unknown)


@pytest.mark.parametrize(
    ("note", "is_read"),
    [
        ("NVML: Unable to retrieve NVLink information as all links are inActive", True),
        ("NVML: Unable to retrieve NVLink information: Unknown Error", False),
    ],
)
def test_a_gpu_whose_links_cannot_be_read_is_not_one_without_links(note, is_read):
    found = parse_link_errors(f"{TEXT}\t {note}\n")
    assert isinstance(found, dict) is is_read


def test_both_probes_ask_the_same_question():
    assert link_errors.question == nvlink_errors.question
