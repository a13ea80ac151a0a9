"""A cluster is known before its machines exist, and the machines that are there correct it."""

from dataclasses import replace

import pytest

from gpuops.errors import LayoutError
from gpuops.placement import GpuShape, NodeShape
from gpuops.planner.gpus import GPUS, gpu_named
from gpuops.planner.hardware import from_catalogue, from_nodes
from gpuops.profile import NO_PROFILE, known

PROFILES = {profile.name: profile for profile in known()}


def node(name, gpus=8, link="NV18", domain=None):
    shapes = tuple(GpuShape(i, f"GPU-{name}-{i}", f"00000000:{i:02X}:00.0", None, f"mlx5_{i}", 0) for i in range(gpus))
    links = {(a, b): link for a in range(gpus) for b in range(a + 1, gpus)}
    return NodeShape(name, name, shapes, (), None, domain or name, links)


def test_a_catalogue_string_gives_nodes_of_a_profile():
    cluster = from_catalogue("16xhgx-h100", PROFILES)
    assert (cluster.gpus, cluster.gpus_per_node, cluster.nodes, cluster.domain_gpus) == (128, 8, 16, 8)
    assert cluster.gpu.name == "H100"
    assert cluster.nvlink_gb_per_s == 365  # the profile's ring of 8
    assert cluster.network_gb_per_s == pytest.approx(45)  # .9 of 400 Gbit/s a GPU
    assert "NIC" in cluster.sources["network_gb_per_s"]


def test_nvlink_of_a_rack_spans_its_trays():
    assert from_catalogue("18xgb200-nvl72", PROFILES).domain_gpus == 72


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_every_profile_with_a_gpu_is_a_cluster(name):
    cluster = from_catalogue(f"2x{name}", PROFILES)
    assert cluster.gpus == 2 * cluster.gpus_per_node
    assert cluster.gpu.tflops["fp16"] > 0
    assert cluster.nvlink_gb_per_s > 0
    assert cluster.network_gb_per_s > 0
    assert cluster.has_nvlink == bool(PROFILES[name].get("nvlink.links"))


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200 NVL", "H200-NVL"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200"),
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("NVIDIA TITAN RTX", "TITAN RTX"),
    ],
)
def test_gpus_are_recognized_as_nvidia_smi_names_them(name, gpu):
    assert gpu_named(name).name == gpu


def test_an_unknown_gpu_is_refused():
    with pytest.raises(LayoutError, match='no rates are known of the GPU "Radeon"'):
        gpu_named("Radeon")


def test_lower_precision_is_never_slower():
    for gpu in GPUS:
        assert gpu.peak_tflops("fp16") <= gpu.peak_tflops("fp8") <= max(gpu.peak_tflops("fp4"), gpu.peak_tflops("fp8"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("16xhgx-h10", '--cluster: no profile named "hgx-h10"; did you mean "hgx-h100"?'),
        ("0xhgx-h100", "has no nodes; at least one is needed"),
        ("sixteen hgx-h100", "is not NODESxPROFILE, such as 16xhgx-h100"),
        ("", "is not NODESxPROFILE"),
    ],
)
def test_a_bad_catalogue_string_gets_one_clear_sentence(text, sentence):
    with pytest.raises(LayoutError) as error:
        from_catalogue(text, PROFILES)
    assert sentence in str(error.value)


def test_nodes_that_are_there_make_a_cluster():
    nodes = [node("a"), node("b", gpus=7)]
    names = dict.fromkeys("ab", "NVIDIA H100 80GB HBM3")
    cluster = from_nodes(nodes, names, PROFILES["hgx-h100"], memory_bytes=85_520_809_984)
    assert (cluster.gpus, cluster.gpus_per_node, cluster.domain_gpus) == (14, 7, 8)
    assert cluster.gpu.memory_bytes == 85_520_809_984


def test_host_memory_is_that_of_the_node_with_least_unless_one_is_unknown():
    nodes = [replace(node("a"), host_gib=2015.5), replace(node("b"), host_gib=1007.5)]
    names = dict.fromkeys("abc", "NVIDIA H100 80GB HBM3")
    cluster = from_nodes(nodes, names, PROFILES["hgx-h100"])
    assert cluster.host_bytes == 1007.5 * (1 << 30)
    assert from_nodes([*nodes, node("c")], names, PROFILES["hgx-h100"]).host_bytes == 0
    stated = cluster.with_storage(512, 28_000)
    assert (stated.host_bytes, stated.nvme_bytes) == (512 << 30, 28_000 << 30)


def test_a_domain_that_spans_nodes_counts_all_its_gpus():
    nodes = [node(name, 4, domain="rack") for name in "abc"]
    cluster = from_nodes(nodes, dict.fromkeys("abc", "NVIDIA GB200"), PROFILES["gb200-nvl72"])
    assert cluster.domain_gpus == 12


def test_without_nvlink_links_are_those_of_pcie():
    cluster = from_nodes([node("a", 2, "PHB")], {"a": "NVIDIA TITAN RTX"}, NO_PROFILE)
    assert not cluster.has_nvlink
    assert cluster.domain_gpus == 1
    assert cluster.nvlink_gb_per_s == 6  # half of PCIe 3.0


def test_measurements_replace_what_a_profile_says():
    cluster = from_catalogue("2xhgx-h100", PROFILES)
    sick = cluster.with_measurements(network_gb_per_s=31, source="allreduce, gpu06 mlx5_6")
    assert (sick.network_gb_per_s, sick.nvlink_gb_per_s) == (31, 365)
    assert sick.sources["network_gb_per_s"] == "allreduce, gpu06 mlx5_6"
    with pytest.raises(LayoutError, match="network_gb_per_s must be above 0, not 0"):
        cluster.with_measurements(network_gb_per_s=0)


@pytest.mark.parametrize(
    ("nodes", "names", "sentence"),
    [
        ([], {}, "no node has a GPU that a job could use"),
        ([node("a", 0)], {"a": "NVIDIA B200"}, "no node has a GPU"),
        (
            [node("a"), node("b"), node("c")],
            {"a": "NVIDIA B200", "b": "NVIDIA B200", "c": "NVIDIA H200"},
            "different GPUs (2 nodes with NVIDIA B200, 1 node with NVIDIA H200); choose those of one type",
        ),
    ],
)
def test_nodes_that_are_no_cluster_get_one_clear_sentence(nodes, names, sentence):
    with pytest.raises(LayoutError) as error:
        from_nodes(nodes, names, PROFILES["hgx-b200"])
    assert sentence in str(error.value)
