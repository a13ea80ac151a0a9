import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.nvlink import GpuLinks, NvLink, nvlink, parse_nvlink
from gpuops.probing import Unknown
from gpuops.shell import Completed

GPU = "GPU {0}: NVIDIA H100 80GB HBM3 (UUID: GPU-{0}0000000-1111-2222-3333-444444444444)\n"
LINKS = "\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
TEXT = GPU.format(0) + LINKS + GPU.format(1) + LINKS


def test_links_have_a_rate_or_none_where_they_are_inactive():
    first, second = parse_nvlink(TEXT)
    assert first.links == (NvLink(0, 26.562), NvLink(1, None))
    assert (second.index, second.name) == (1, "NVIDIA H100 80GB HBM3")
    assert second.uuid == "GPU-10000000-1111-2222-3333-444444444444"


@pytest.mark.parametrize("word", ["<inactive>", "<Inactive>", "Inactive", "inActive"])
def test_a_link_that_is_down_is_spelled_in_several_ways(word):
    (only,) = parse_nvlink(f"{GPU.format(0)}\t Link 0: 26.562 GB/s\n\t Link 1: {word}\n")
    assert only.links == (NvLink(0, 26.562), NvLink(1, None))


@pytest.mark.parametrize(
    "sentence",
    [
        "NVML: Unable to retrieve Nvlink information as all links are inActive",
        "Unable to retrieve NVLink information as all links are inActive",
        "Device does not have or support Nvlink",
        "",
    ],
)
def test_a_gpu_without_links_says_so_in_several_ways(sentence):
    expected = GpuLinks(0, "NVIDIA H100 80GB HBM3", "GPU-00000000-1111-2222-3333-444444444444", (), sentence)
    assert parse_nvlink(f"{GPU.format(0)}{sentence}\n") == (expected,)


@pytest.mark.parametrize(
    "line",
    [
        "NVML: Unable to retrieve NVLink information: Unknown Error",
        "Unable to query NVLink state: GPU is lost",
        "\t Link 1: Unknown Error",
        "\t Link 1: ERR!",
        "\t Link 1: [N/A]",
        "GPU requires reset",
    ],
)
def test_an_error_of_one_gpu_leaves_the_others(line):
    first, second = parse_nvlink(f"{GPU.format(0)}{line}\n{GPU.format(1)}{LINKS}")
    assert (first.links, first.unread) == ((), line.strip())
    assert (second.links, second.unread) == ((NvLink(0, 26.562), NvLink(1, None)), "")


def test_what_was_read_before_nvidia_smi_gave_up_counts():
    first, second = nvlink.read(Completed("n1", nvlink.question, 255, TEXT, "Unknown Error"))
    assert (first.unread, second.unread) == ("", "nvidia-smi exited with 255")
    assert (
        "exited with 255: Unknown Error" in nvlink.read(Completed("n1", nvlink.question, 255, "", "Unknown Error")).why
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "printed nothing"),
        ("No devices were found\n", "expected a GPU or its next link"),
        (GPU.format(0) + "\t Link 0: Replay Errors: 0\n", "expected a GPU or its next link"),
        (GPU.format(0) + "\t Link 0: Raw Tx: 25305739 KiB\n", "expected a GPU or its next link"),
        (GPU.format(0) + "\t Link 0: 26.562 GB\n", "expected a GPU or its next link"),
        (GPU.format(0) + "...\n", "expected a GPU or its next link"),
        (GPU.format(0) + LINKS + LINKS, "expected a GPU or its next link"),
        (TEXT + TEXT, "expected a GPU or its next link"),
    ],
)
def test_other_answers_are_unknown_and_say_why(text, why):
    value = parse_nvlink(text)
    assert isinstance(value, Unknown)
    assert why in value.why


def test_the_probe_refuses_a_failed_or_cut_answer():
    assert nvlink.question.lane == "nvidia"
    assert nvlink.read(Completed("n", nvlink.question, 0, TEXT)) == parse_nvlink(TEXT)
    assert isinstance(nvlink.read(Completed("n", nvlink.question, 0, TEXT, truncated=True)), Unknown)
    assert "not installed" in nvlink.read(Completed("n", nvlink.question, 127)).why


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_nvlink(text), Unknown)


@given(st.integers(min_value=0, max_value=len(TEXT)))
def test_a_cut_answer_is_unknown_or_has_fewer_links(length):
    value = parse_nvlink(TEXT[:length])
    if not isinstance(value, Unknown):
        for cut, whole in zip(value, parse_nvlink(TEXT), strict=False):
            assert cut.links == whole.links[: len(cut.links)]


@given(st.integers(min_value=0, max_value=len(TEXT) - 1), st.characters(codec="utf-8"))
def test_a_damaged_character_never_raises(place, character):
    assert isinstance(parse_nvlink(TEXT[:place] + character + TEXT[place + 1 :]), (tuple, Unknown))
