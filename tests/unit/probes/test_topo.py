import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.probes.nvidia.topo import Topology, link_distance, parse_topo, topo
from gpuops.probing import Unknown
from gpuops.shell import Completed

MATRIX = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\t\t1\t\t2\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\t\n"
)
TEXT = MATRIX + "\nLegend:\n\n  X    = Self\n  NV#  = Connection\n\nNIC Legend:\n\n  NIC0: rocep49s0\n\n"


def test_the_matrix_with_its_affinities_and_legend():
    value = parse_topo(TEXT)
    assert (value.gpus, value.nics) == (("GPU0", "GPU1"), ("NIC0",))
    assert value.links == {
        ("GPU0", "GPU1"): "NV18",
        ("GPU1", "GPU0"): "NV18",
        ("GPU0", "NIC0"): "PIX",
        ("NIC0", "GPU0"): "PIX",
        ("GPU1", "NIC0"): "SYS",
        ("NIC0", "GPU1"): "SYS",
    }
    assert value.cpu_affinity == {"GPU0": "0-31,64-95", "GPU1": None}
    assert value.numa_affinity == {"GPU0": "0", "GPU1": "1"}
    assert value.gpu_numa_id == {"GPU0": None, "GPU1": "2"}
    assert value.nic_names == {"NIC0": "rocep49s0"}


def test_distance_ranks_nvlink_before_pcie_and_unknown_words_last():
    words = ["NV18", "NV2", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS"]
    ranks = [link_distance(word) for word in words]
    assert ranks == sorted(set(ranks))
    assert {link_distance(word) for word in ("SOC", "C2C", "unknown", "NVX", "")} == {float("inf")}


def test_distance_of_two_devices_is_that_of_their_link():
    matrix = parse_topo(TEXT)
    assert matrix.distance("GPU0", "GPU1") < matrix.distance("GPU0", "NIC0") < matrix.distance("NIC0", "GPU1")


def test_a_header_may_name_the_devices_themselves():
    value = parse_topo("\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\t X \tPIX\t0-3\nmlx5_0\tPIX\t X\n")
    assert (value.nics, value.nic_names) == (("mlx5_0",), {"mlx5_0": "mlx5_0"})
    assert (value.cpu_affinity, value.numa_affinity) == ({"GPU0": "0-3"}, {})


def test_a_pasted_matrix_with_spaces_and_a_prompt_is_read():
    value = parse_topo(
        "$ nvidia-smi topo -m\r\n     GPU0  GPU1  CPU Affinity\r\nGPU0  X  NV2  0-3\r\nGPU1  NV2  X  4-7\r\n"
    )
    assert value.links["GPU0", "GPU1"] == "NV2"
    assert value.cpu_affinity == {"GPU0": "0-3", "GPU1": "4-7"}


def test_an_empty_cell_among_spaces_could_be_any_so_none_is_reported():
    value = parse_topo("   GPU0  CPU Affinity  NUMA Affinity  GPU NUMA ID\nGPU0   X      0     N/A\n")
    assert (value.cpu_affinity, value.numa_affinity) == ({"GPU0": None}, {"GPU0": None})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no matrix"),
        ("Failed to run topology matrix\n", "no matrix"),
        ("\tGPU0\tGPU1\n GPU0\tX\tNS\n", "1 rows for 2 devices"),
        (MATRIX.replace("GPU1\tNV18\t X \tSYS", "GPU1\tN/A\tN/A\tN/A"), "row of GPU1"),
        (MATRIX.replace("GPU1\tNV18\t X ", "GPU1\tNV18\tNV18"), "diagonal"),
        (MATRIX.replace("NIC0\tPIX\tSYS\t X \t\t\t\t\n", ""), "2 rows for 3 devices"),
        (MATRIX.replace("NIC0\tPIX\tSYS\t X ", "NIC0\tPIX\tSYS"), "diagonal"),
        ("\tGPU0\tGPU0\nGPU0\tX\tX\nGPU0\tX\tX\n", "1 rows for 2 devices"),
    ],
)
def test_a_matrix_that_is_not_whole_is_unknown_and_says_why(text, why):
    value = parse_topo(text)
    assert isinstance(value, Unknown)
    assert why in value.why


@pytest.mark.parametrize("word", ["N/A", "ERR!", "Unknown Error", "???"])
def test_a_cell_that_cannot_be_read_leaves_the_others(word):
    value = parse_topo(MATRIX.replace("NV18", word, 1))
    assert value.links == {pair: link for pair, link in parse_topo(MATRIX).links.items() if pair != ("GPU0", "GPU1")}
    assert value.distance("GPU0", "GPU1") == float("inf")


def test_the_probe_refuses_a_failed_or_cut_answer():
    assert topo.question.lane == "nvidia"
    assert topo.read(Completed("n", topo.question, 0, TEXT)) == parse_topo(TEXT)
    assert isinstance(topo.read(Completed("n", topo.question, 0, TEXT, truncated=True)), Unknown)
    assert "exited with 255" in topo.read(Completed("n", topo.question, 255, TEXT, "Failed")).why


@given(st.text())
def test_any_text_gets_an_answer(text):
    assert isinstance(parse_topo(text), Unknown)


@given(st.integers(min_value=0, max_value=len(TEXT)))
def test_a_cut_answer_is_unknown_or_lacks_only_the_legend(length):
    value, whole = parse_topo(TEXT[:length]), parse_topo(TEXT)
    assert isinstance(value, Unknown) == (length < len(MATRIX))
    if isinstance(value, Topology):
        assert (value.links, value.cpu_affinity) == (whole.links, whole.cpu_affinity)
        assert value.nic_names in ({}, whole.nic_names)


@given(st.integers(min_value=0, max_value=len(TEXT) - 1), st.characters(codec="utf-8"))
def test_a_damaged_character_never_raises(place, character):
    assert isinstance(parse_topo(TEXT[:place] + character + TEXT[place + 1 :]), (Topology, Unknown))


def test_the_legend_of_a_whole_answer_may_end_without_a_newline():
    answer = Completed("n", topo.question, 0, TEXT.rstrip())
    assert topo.read(answer) == parse_topo(TEXT)
    assert topo.read(answer).nic_names == {"NIC0": "rocep49s0"}
