"""A profile that is learned from nodes says what most of them show, and names the others."""

import datetime as dt
from dataclasses import replace

import pytest

from gpuops.facts import Facts
from gpuops.learning import kind_of, learn, suggested_name
from gpuops.probes.host.lspci import PciFunction
from gpuops.probes.network.ib import IbPort
from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi, SmiError
from gpuops.probes.nvidia.nvlink import GpuLinks, NvLink
from gpuops.probes.nvidia.topo import Topology
from gpuops.probing import Unknown
from gpuops.profile import known, load_file
from gpuops.report.page import Page
from gpuops.report.profiles import learned_lines, to_yaml
from gpuops.results.learned import LearnedProfile

NOW = dt.datetime(2026, 11, 23, tzinfo=dt.timezone.utc)


def node(host="n1", gpus=4, pair="SYS", rates=(400.0, 400.0), **changes):
    common = {
        "mig_mode": False,
        "pcie_generation_max": 4,
        "pcie_width": 16,
        "power_limit_watts": 72.0,
        "ecc_mode": True,
    }
    all_gpus = tuple(
        Gpu(**{"index": i, "address": f"0000:{i + 1:02x}:00.0", "name": "NVIDIA L4", **common, **changes})
        for i in range(gpus)
    )
    names = tuple(f"GPU{i}" for i in range(gpus))
    pairs = pair if callable(pair) else lambda _a, _b: pair
    links = {(f"GPU{a}", f"GPU{b}"): pairs(a, b) for a in range(gpus) for b in range(gpus) if a != b}
    return Facts(
        host,
        NOW,
        {
            "smi": Smi(gpus=all_gpus),
            "nvlink": tuple(GpuLinks(i, "NVIDIA L4", f"GPU-{i}") for i in range(gpus)),
            "topo": Topology(names, (), links),
            "gpu_functions": (PciFunction("0000:01:00.0", "0302", "10de", "27b8", "a1", ""),),
            "ib_ports": tuple(
                IbPort(f"mlx5_{n}", 1, "Active", "LinkUp", rate, "InfiniBand") for n, rate in enumerate(rates)
            ),
        },
    )


def learned(*nodes, profiles=()):
    return learn("", "NVIDIA L4", {each.node: each for each in nodes}, profiles)


def values(result):
    return {key: each.value for key, each in result.profile.values.items()}


def text(result):
    return "\n".join(learned_lines(LearnedProfile(result), Page()))


def test_alike_nodes_give_a_profile_of_all_that_they_show():
    result = learned(node("n1"), node("n2"))
    assert values(result) == {
        "gpu.count": 4,
        "gpu.ecc": True,
        "gpu.row_remap": False,
        "nvlink.links": 0,
        "nvlink.gb_per_s": 0,
        "nvswitch": False,
        "topology.gpu_pairs": "SYS",
        "pcie.generation": 4,
        "pcie.width": 16,
        "power.limit_watts": 72.0,
        "nic.count": 2,
        "nic.rate_gbps": 400.0,
    }
    assert {each.grade for each in result.profile.values.values()} == {"measured-here"}
    assert {each.source for each in result.profile.values.values()} == {"learned from 2 nodes on 2026-11-23"}
    assert (result.profile.name, result.differences, result.undecided) == ("my-l4", (), ())
    assert result.profile.match.fits("NVIDIA L4", 4)
    assert {"ib-ports", "ecc-uncorrectable", "gpu-lost"} <= result.profile.required
    assert "nvlink-links" not in result.profile.required


def test_a_node_that_differs_is_named_with_what_it_shows():
    result = learned(node("n1"), node("n2"), node("n3", gpus=3, power_limit_watts=60.0))
    assert {(each.node, each.key) for each in result.differences} == {("n3", "gpu.count"), ("n3", "power.limit_watts")}
    assert values(result)["gpu.count"] == 4
    assert "differs    n3: power.limit_watts is 60, not 72" in text(result)


def test_one_bad_gpu_of_the_only_node_is_not_the_rule():
    one = node("n1")
    gpus = one.values["smi"].gpus
    bad = replace(one, values={**one.values, "smi": Smi(gpus=(*gpus[:3], replace(gpus[3], pcie_width=8)))})
    result = learned(bad)
    assert values(result)["pcie.width"] == 16
    assert "n1: pcie.width is 16 (3 of 4), 8 (1 of 4), not 16" in text(result)


def test_a_tie_is_left_out_and_said():
    result = learned(node("n1"), node("n2", gpus=2))
    assert "gpu.count" not in values(result)
    assert "gpu.count" in result.undecided
    assert result.profile.match.gpu_count is None
    assert "left out   gpu.count: no value is that of more than half" in text(result)


@pytest.mark.parametrize(
    ("gpus", "pair", "expected"),
    [
        (4, lambda a, b: "NV4" if a // 2 == b // 2 else "SYS", ["NV4", "SYS", "SYS"]),
        (3, lambda a, b: "PHB" if {a, b} == {0, 1} else "SYS", "SYS"),
        (1, "SYS", None),
    ],
)
def test_pairs_that_differ_are_listed_if_each_gpu_has_the_same(gpus, pair, expected):
    assert values(learned(node("n1", gpus=gpus, pair=pair))).get("topology.gpu_pairs") == expected


def test_what_is_unknown_is_not_learned():
    blind = node("n1")
    dark = dict.fromkeys(("nvlink", "topo", "gpu_functions", "ib_ports"), Unknown("refused"))
    assert set(values(learned(replace(blind, values={**blind.values, **dark})))) == {
        "gpu.count",
        "gpu.ecc",
        "gpu.row_remap",
        "pcie.generation",
        "pcie.width",
        "power.limit_watts",
    }


def test_links_of_gpus_in_mig_mode_do_not_count():
    one = node("n1", mig_mode=True)
    assert not {"nvlink.links", "topology.gpu_pairs"} & set(values(learned(one)))


def test_active_links_are_counted():
    one = node("n1", gpus=2)
    links = (NvLink(0, 25.781), NvLink(1, 25.781), NvLink(2, None))
    both = tuple(GpuLinks(i, "", "", links) for i in range(2))
    result = values(learned(replace(one, values={**one.values, "nvlink": both})))
    assert (result["nvlink.links"], result["nvlink.gb_per_s"]) == (2, 25.781)


def test_nvswitches_are_counted_and_required():
    one = node("n1")
    switches = tuple(PciFunction(f"0000:0{n}:00.0", "0680", "10de", "22a3", "a1", "") for n in range(4))
    result = learned(replace(one, values={**one.values, "gpu_functions": switches}))
    assert (values(result)["nvswitch"], values(result)["nvswitches.count"]) == (True, 4)
    assert "nvswitches" in result.profile.required


def test_the_profile_of_known_machines_is_like_theirs(tmp_path):
    facts = {"n1": node("n1", name="NVIDIA L40S")}
    result = learn("ours", "NVIDIA L40S", facts, known())
    assert result.like == "l40s"
    file = tmp_path / "ours.yml"
    file.write_text(to_yaml(result.profile, result.like))
    read = load_file(file)
    assert read.values == result.profile.values
    assert (read.match, read.required, read.name) == (result.profile.match, result.profile.required, "ours")
    assert "like: l40s" in file.read_text()


def test_a_profile_is_never_like_itself():
    again = learn("l40s", "NVIDIA L40S", {"n1": node("n1", name="NVIDIA L40S")}, known())
    assert again.like == ""


def test_the_kind_of_a_node_is_its_gpu():
    assert kind_of(node()) == "NVIDIA L4"
    two = (Gpu(0, "0000:01:00.0", name="NVIDIA L4"), Gpu(1, "0000:02:00.0", name="NVIDIA L40"))
    assert kind_of(Facts("n", NOW, {"smi": Smi(gpus=two)})) == "NVIDIA L4 and NVIDIA L40"
    lost = Smi(error=SmiError("gpu-lost", "GPU is lost"))
    assert kind_of(Facts("n", NOW, {"smi": lost})) == Unknown("GPU is lost")
    assert kind_of(Facts("n", NOW, {"smi": Unknown("refused")})) == Unknown("refused")


@pytest.mark.parametrize(
    ("kind", "name"),
    [("NVIDIA GeForce RTX 4090", "my-rtx-4090"), ("Tesla V100-SXM2-32GB", "my-v100-sxm2-32gb"), ("NVIDIA L4", "my-l4")],
)
def test_a_name_is_suggested(kind, name):
    assert suggested_name(kind) == name
