import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvlink_errors import nvlink_errors, parse_nvlink_errors
from gpuops.probing import Unknown

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
