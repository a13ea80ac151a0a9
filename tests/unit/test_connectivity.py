"""Connections of nodes: what nvidia-smi and /sys say, the rate of each pair, and what that means for training."""

import datetime as dt
import itertools
import json
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from gpuops.connectivity import LANE_GB_PER_S, connectivity_of
from gpuops.facts import Facts
from gpuops.probes.host.lspci import PciFunction
from gpuops.probes.network.ib import IbPort
from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi, SmiError
from gpuops.probes.nvidia.nvlink import GpuLinks, NvLink
from gpuops.probes.nvidia.topo import Topology
from gpuops.probing import Unknown
from gpuops.reasons import Excluded
from gpuops.report import topology
from gpuops.report.page import Page
from gpuops.report.svg import topology as topology_svg
from gpuops.results.topology import NodeTopologies, meaning

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
DGX1 = {(0, 1): 2, (0, 2): 1, (0, 3): 2, (0, 6): 1, (1, 2): 2, (1, 3): 1, (1, 7): 1, (2, 3): 1}
DGX1 |= {(2, 4): 2, (3, 5): 2, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2}
"""NVLinks of each pair of a DGX-1 with V100, as nvidia-smi topo -m lists them."""


def machine(count, word, *, rate=0.0, links=0, generation=4, nics=(), mig=(), switches=0, cluster=None, **changed):
    """Facts of a node; ``word`` is the link of all pairs, or a function of two indices."""
    name = changed.pop("name", "NVIDIA X")
    common = {
        "name": name,
        "pcie_generation_max": generation,
        "pcie_width": 16,
        "fabric_clique_id": 7 if cluster else None,
    }
    gpus = [
        Gpu(i, f"0000:{i + 1:02x}:00.0", mig_mode=i in mig, fabric_cluster_uuid=cluster, **common) for i in range(count)
    ]
    of = word if callable(word) else lambda _a, _b: word
    matrix = {(f"GPU{a}", f"GPU{b}"): of(*sorted((a, b))) for a, b in itertools.permutations(range(count), 2)}
    columns = tuple(f"NIC{n}" for n in range(len(nics)))
    matrix |= {(f"GPU{a}", c): "PIX" if a == n else "SYS" for a in range(count) for n, c in enumerate(columns)}
    topo = Topology(
        tuple(f"GPU{i}" for i in range(count)),
        columns,
        matrix,
        numa_affinity={f"GPU{i}": str(2 * i // count) for i in range(count)},
        nic_names={c: f"mlx5_{n}" for n, c in enumerate(columns)},
    )
    values = {
        "smi": Smi(gpus=tuple(gpus)),
        "topo": topo,
        "nvlink": tuple(GpuLinks(i, name, "", tuple(NvLink(n, rate) for n in range(links))) for i in range(count)),
        "pcie": {},
        "gpu_functions": tuple(
            PciFunction(f"0000:0{n}:00.0", "0680", "10de", "22a3", "a1", "") for n in range(switches)
        ),
        "ib_ports": tuple(
            IbPort(f"mlx5_{n}", 1, "Active", "LinkUp", rate, "InfiniBand") for n, rate in enumerate(nics)
        ),
    }
    return Facts("n1", NOW, {**values, **changed})


HGX = machine(
    8, "NV18", rate=26.562, links=18, generation=5, nics=[400.0] * 8, switches=4, name="NVIDIA H100 80GB HBM3"
)
BRIDGED = machine(4, lambda a, b: "NV4" if b - a == 1 and a % 2 == 0 else "SYS", rate=14.062, links=4)
MESH = machine(8, lambda a, b: f"NV{DGX1[a, b]}" if (a, b) in DGX1 else "NODE", rate=25.781, links=6, generation=3)
RACK = machine(4, "NV18", rate=53.125, links=18, generation=6, cluster="8a3e1f60-0000-0000-0000-000000000001")
MACHINES = {
    "hgx": HGX,
    "hgx-in-a-vm": machine(8, "NV18", rate=26.562, links=18, generation=5),
    "titan-pair": machine(2, "NV2", rate=25.781, links=2, generation=3),
    "bridged": BRIDGED,
    "mesh": MESH,
    "rack": RACK,
    "pcie": machine(4, "NODE"),
    "switch": machine(4, "PIX"),
    "dgx2": machine(16, "NV6", rate=25.781, links=6, generation=3, switches=12, nics=[100.0] * 8),
    "many": machine(16, "NODE", nics=[400.0] * 18),
    "one": machine(1, "X"),
    "some-mig": machine(4, "NV12", rate=25.0, links=12, mig=(1,)),
    "all-mig": machine(2, "NV12", mig=(0, 1)),
    "without-topo": machine(4, "SYS", topo=Unknown("topo was refused")),
    "without-nvlink": machine(8, "NV18", generation=5, nvlink=Unknown("nvlink was refused")),
    "nothing-else": Facts("n1", NOW, {"smi": HGX.values["smi"]}),
}


def of(facts):
    found = connectivity_of(facts)
    assert not isinstance(found, Unknown)
    return found


def screen(**nodes):
    result = NodeTopologies({name: of(facts) for name, facts in nodes.items()})
    return list(topology.lines(result, Page()))


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("hgx", "nvlink"),
        ("titan-pair", "nvlink"),
        ("bridged", "mixed"),
        ("mesh", "nvlink-ring"),
        ("rack", "nvlink"),
        ("pcie", "pcie-host"),
        ("switch", "pcie-switch"),
        ("one", "none"),
        ("some-mig", "nvlink"),
        ("all-mig", "none"),
        ("without-topo", "unknown"),
        ("without-nvlink", "nvlink"),
        ("nothing-else", "unknown"),
    ],
)
def test_how_gpus_reach_each_other(name, means):
    assert of(MACHINES[name]).means == means


@pytest.mark.parametrize(
    ("name", "one", "other", "rate"),
    [
        ("hgx", 0, 7, 18 * 26.562),
        ("titan-pair", 0, 1, 2 * 25.781),
        ("bridged", 0, 1, 4 * 14.062),
        ("bridged", 0, 2, 16 * 1.969),
        ("mesh", 0, 1, 2 * 25.781),
        ("mesh", 0, 2, 25.781),
        ("mesh", 0, 7, 16 * 0.985),
        ("without-nvlink", 0, 1, None),
    ],
)
def test_the_rate_of_a_pair(name, one, other, rate):
    (pair,) = (each for each in of(MACHINES[name]).pairs if (each.one, each.other) == (one, other))
    assert pair.gb_per_s == (None if rate is None else pytest.approx(rate))


def test_a_pair_is_as_fast_as_its_narrower_slot():
    gpus = HGX.values["smi"].gpus
    narrow = replace(MACHINES["pcie"], values={**MACHINES["pcie"].values, "smi": Smi(gpus=tuple(
        replace(gpu, pcie_width=8 if gpu.index == 1 else 16, pcie_generation_max=4) for gpu in gpus[:4]
    ))})  # fmt: skip
    rates = {(p.one, p.other): p.gb_per_s for p in of(narrow).pairs}
    assert rates[0, 1] == rates[1, 3] == pytest.approx(8 * LANE_GB_PER_S[4])
    assert rates[0, 2] == pytest.approx(16 * LANE_GB_PER_S[4])


@pytest.mark.parametrize(
    ("name", "gpus", "rate"),
    [("hgx", 8, 18 * 26.562), ("mesh", 8, 6 * 25.781), ("bridged", 4, 16 * 1.969), ("pcie", 4, 16 * 1.969)],
)
def test_a_step_takes_the_payload_over_the_slowest_hop(name, gpus, rate):
    cost = of(MACHINES[name]).cost
    assert (cost.gpus, cost.gb_per_s) == (gpus, pytest.approx(rate))
    assert cost.ddp_seconds == pytest.approx(2 * (gpus - 1) / gpus * 14 / rate)
    assert cost.zero3_seconds == pytest.approx(1.5 * cost.ddp_seconds)


@pytest.mark.parametrize("name", ["one", "all-mig", "without-topo", "without-nvlink", "nothing-else"])
def test_no_cost_is_computed_from_what_is_unknown(name):
    assert of(MACHINES[name]).cost is None
    assert "DDP" not in " ".join(meaning(of(MACHINES[name])))


def test_between_nodes_only_nics_of_gpus_count():
    storage = (*HGX.values["ib_ports"], IbPort("mlx5_8", 1, "Active", "LinkUp", 100.0, "Ethernet"))
    cost = of(replace(HGX, values={**HGX.values, "ib_ports": storage})).cost_between_nodes
    assert (cost.gpus, cost.gb_per_s) == (16, 400.0)


def test_a_nic_that_is_down_carries_nothing():
    ports = tuple(replace(p, state="Down" if p.device == "mlx5_0" else p.state) for p in HGX.values["ib_ports"])
    node = of(replace(HGX, values={**HGX.values, "ib_ports": ports}))
    assert node.cost_between_nodes.gb_per_s == 350.0
    assert any("mlx5_0 PIX 400 Gbit/s down" in line for line in topology.lines(NodeTopologies({"n1": node}), Page()))


SWITCHED = "All 8 GPUs reach each other over NVLink through NVSwitches (NV18, at most 478 GB/s each way)."
GROUPS = (
    "NVLink joins only GPU 0-1 and 2-3; other pairs reach each other over PCIe (SYS, at most 31.5 GB/s each way). "
    "Tensor parallelism belongs inside these groups."
)
RING = (
    "NVLinks make a ring through all 8 GPUs, but 12 of 28 pairs reach each other over PCIe "
    "(NODE, at most 15.8 GB/s each way)."
)
OVER_PCIE = (
    "GPU pairs reach each other over PCIe through the host (NODE, at most 31.5 GB/s each way). "
    "Tensor parallelism is slow here."
)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("hgx", SWITCHED),
        ("hgx-in-a-vm", SWITCHED),
        ("titan-pair", "Both GPUs reach each other over NVLink (NV2, at most 51.6 GB/s each way)."),
        ("bridged", GROUPS),
        ("mesh", RING),
        ("pcie", OVER_PCIE),
        ("one", "One GPU: there is nothing to exchange within the node."),
        ("all-mig", "All GPUs are split by MIG: their instances exchange data through the host only."),
        ("without-topo", "How the GPUs reach each other is unknown."),
        ("without-nvlink", "All 8 GPUs reach each other over NVLink (NV18, rate unknown)."),
    ],
)
def test_the_first_sentence_says_how_gpus_are_connected(name, sentence):
    assert meaning(of(MACHINES[name]))[0] == sentence


def test_a_rack_says_that_nvlink_leads_beyond_the_node():
    assert "NVLink leads beyond this node" in meaning(of(RACK))[1]
    assert "NVLink domain 8a3e1f60" in " ".join(screen(n1=RACK)[:2])


def test_gpus_in_mig_mode_are_not_counted_but_shown():
    lines = screen(n1=MACHINES["some-mig"])
    assert any(line.startswith("1 MIG") for line in lines)
    assert "GPU 1 is split by MIG and not counted." in lines
    assert of(MACHINES["some-mig"]).cost.gpus == 3
    assert meaning(of(MACHINES["some-mig"]))[0].startswith("All 3 GPUs reach each other over NVLink through NVSwitches")


def test_the_other_gpus_are_still_switched_if_one_is_in_mig_mode():
    split = machine(4, lambda a, b: "NODE" if 1 in (a, b) else "NV18", rate=26.562, links=18, mig=(1,), switches=4)
    links = tuple(replace(each, links=()) if each.index == 1 else each for each in split.values["nvlink"])
    node = of(replace(split, values={**split.values, "nvlink": links}))
    assert (node.means, node.is_switched) == ("nvlink", True)
    drawing = topology_svg.draw(NodeTopologies({"n1": node}))
    assert drawing.count("<line") == 3


def test_one_unreadable_cell_leaves_the_rest():
    links = dict(HGX.values["topo"].links)
    del links["GPU0", "GPU1"]
    node = of(replace(HGX, values={**HGX.values, "topo": replace(HGX.values["topo"], links=links)}))
    assert [(p.one, p.other) for p in node.pairs if p.link is None] == [(0, 1)]
    assert node.means == "unknown"
    assert any(" ? NV18" in line for line in topology.lines(NodeTopologies({"n1": node}), Page()))


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_fits_the_page_and_has_a_drawing_and_a_document(name):
    result = NodeTopologies({name: of(MACHINES[name])}, {"n9": Excluded("n9", "unknown", "refused")})
    lines = list(topology.lines(result, Page()))
    assert max(map(len, lines)) <= 80
    assert "n9: refused" in lines
    drawing = ET.fromstring(topology_svg.draw(result))
    texts = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert all(any(f"GPU {gpu.index}" in text for text in texts) for gpu in of(MACHINES[name]).gpus)
    assert set(json.loads(result.to_json())["nodes"]) == {name}


def test_nodes_that_are_alike_are_shown_once():
    other = replace(HGX, values={**HGX.values, "smi": Smi(gpus=tuple(
        replace(gpu, address=f"0000:a{gpu.index}:00.0", uuid="other") for gpu in HGX.values["smi"].gpus
    ))})  # fmt: skip
    assert sum(line.startswith("n[1-2]   8 NVIDIA H100") for line in screen(n1=HGX, n2=other)) == 1
    assert sum("8 NVIDIA" in line for line in screen(n1=HGX, n2=MACHINES["hgx-in-a-vm"])) == 2


def test_switches_are_a_bar_and_bridges_are_arcs():
    def arcs(name):
        drawing = ET.fromstring(topology_svg.draw(NodeTopologies({name: of(MACHINES[name])})))
        return len(list(drawing.iter("{http://www.w3.org/2000/svg}path")))

    assert [arcs(name) for name in ("hgx", "hgx-in-a-vm", "rack", "bridged", "mesh", "pcie")] == [0, 0, 0, 2, 16, 0]


def test_a_drawing_escapes_what_nodes_say():
    evil = machine(2, "SYS", name="<script>\x1b[2J&")
    drawing = topology_svg.draw(NodeTopologies({"n1": of(evil)}))
    assert "<script>" not in drawing
    assert "\x1b" not in drawing


def test_a_node_without_a_gpu_is_unknown():
    lost = Facts("n1", NOW, {"smi": Smi(error=SmiError("gpu-lost", "GPU is lost"))})
    assert connectivity_of(lost) == Unknown("GPU is lost")
    assert connectivity_of(Facts("n1", NOW, {"smi": Unknown("refused")})) == Unknown("refused")


def test_gaps_make_the_result_incomplete():
    assert NodeTopologies({"n1": of(HGX)}).conclusion() == "ok"
    assert NodeTopologies({"n1": of(MACHINES["without-topo"])}).conclusion() == "incomplete"
    assert NodeTopologies({}, {"n1": Excluded("n1", "unknown", "refused")}).conclusion() == "incomplete"
