from datetime import datetime, timezone

import pytest
from tests.recorded import outputs

from gpuops.collective.fabrics import by_cables, by_neighbours, fabric_of, leaves_of
from gpuops.facts import Facts
from gpuops.inventory import Port
from gpuops.isolation.fabric import FabricNic, FabricNode
from gpuops.probes.network import ibnetdiscover
from gpuops.probes.network.gids import Gid
from gpuops.probes.network.ib import IbPort
from gpuops.probes.network.ibnetdiscover import Cable, End
from gpuops.probes.network.lldp import lldp
from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi
from gpuops.probes.nvidia.topo import Topology
from gpuops.probing import Unknown
from gpuops.shell import Completed

NICS = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


def facts(name, gpus=4, nics=NICS, *, layer="InfiniBand", near=None, down=()):
    """A node whose GPU k is nearest to NIC k, or to the one that ``near`` tells."""
    cards = tuple(Gpu(k, f"0000:{k:02x}:00.0", uuid=f"GPU-{k}") for k in range(gpus))
    near = near or {k: nics[k] for k in range(min(gpus, len(nics)))}
    names = [f"GPU{k}" for k in range(gpus)]
    links = {(a, b): "NV18" for a in names for b in names if a != b}
    links |= {(gpu, nic): "PIX" if near.get(k) == nic else "SYS" for k, gpu in enumerate(names) for nic in nics}
    matrix = Topology(tuple(names), tuple(nics), links, nic_names={nic: nic for nic in nics})
    ports = tuple(
        IbPort(
            nic, 1, "Down" if nic in down else "Active", "LinkUp", 400.0, layer, guid=f"{name[-1] * 4}:0000:0000:000{k}"
        )
        for k, nic in enumerate(nics)
    )
    values = {"smi": Smi(gpus=cards), "topo": matrix, "ib_ports": ports, "gids": ()}
    return Facts(name, datetime.now(timezone.utc), values)


def declared(*leaves):
    return {f"mlx5_{k}": Port(k, leaf) for k, leaf in enumerate(leaves)}


def test_what_the_inventory_declares_is_the_fabric(a_host):
    hosts = [
        a_host("n1", fabric=declared("L0", "L1", "L2", "L3")),
        a_host("n2", fabric=declared("L0", "L1", "L2", "L3")),
    ]
    fabric = fabric_of(hosts, {"n1": facts("n1"), "n2": facts("n2")}, {("n1", "mlx5_0"): "another"})
    nics = tuple(FabricNic(f"mlx5_{k}", k, 50.0, f"L{k}", "InfiniBand") for k in range(4))
    assert fabric.nodes == {"n1": FabricNode("n1", (0, 1, 2, 3), nics), "n2": FabricNode("n2", (0, 1, 2, 3), nics)}
    assert fabric.units == {"U0": ("n1", "n2")}


def test_each_nic_has_the_link_layer_of_its_port(a_host):
    fabric = fabric_of([a_host("n1"), a_host("n2")], {"n1": facts("n1"), "n2": facts("n2", layer="Ethernet")})
    assert {nic.link_layer for nic in fabric.nodes["n1"].nics} == {"InfiniBand"}
    assert {nic.link_layer for nic in fabric.nodes["n2"].nics} == {"Ethernet"}


def test_rails_are_told_by_the_gpus_where_nobody_declares_them(a_host):
    crossed = facts("n1", near={0: "mlx5_2", 1: "mlx5_3", 2: "mlx5_0", 3: "mlx5_1"})
    (node,) = fabric_of([a_host("n1")], {"n1": crossed}).nodes.values()
    assert [(nic.name, nic.rail) for nic in node.nics] == [("mlx5_2", 0), ("mlx5_3", 1), ("mlx5_0", 2), ("mlx5_1", 3)]
    assert node.gpus == (0, 1, 2, 3)
    assert node.leaves == ()


def test_each_of_fewer_nics_stands_beside_the_first_gpu_that_it_serves(a_host):
    few = facts("n1", nics=NICS[:2], near={0: "mlx5_0", 1: "mlx5_0", 2: "mlx5_1", 3: "mlx5_1"})
    (node,) = fabric_of([a_host("n1")], {"n1": few}).nodes.values()
    assert [(nic.name, nic.rail) for nic in node.nics] == [("mlx5_0", 0), ("mlx5_1", 1)]
    assert node.gpus == (0, 2, 1, 3)


def test_a_node_that_lacks_a_nic_keeps_the_rails_of_its_others(a_host):
    lacking = facts("n2", nics=[NICS[0], NICS[2], NICS[3]], near={0: "mlx5_0", 2: "mlx5_2", 3: "mlx5_3"})
    fabric = fabric_of([a_host("n1"), a_host("n2")], {"n1": facts("n1"), "n2": lacking})
    assert {nic.name: nic.rail for nic in fabric.nodes["n2"].nics} == {"mlx5_0": 0, "mlx5_2": 2, "mlx5_3": 3}


def test_a_port_that_is_down_has_no_rate_and_a_node_may_have_no_nic(a_host):
    fabric = fabric_of([a_host("n1"), a_host("n2")], {"n1": facts("n1", down=["mlx5_1"]), "n2": facts("n2", nics=[])})
    assert [nic.gb_per_s for nic in fabric.nodes["n1"].nics] == [50.0, 0.0, 50.0, 50.0]
    assert fabric.nodes["n2"] == FabricNode("n2", (0, 1, 2, 3), ())


def test_a_node_whose_gpus_are_not_known_is_left_out(a_host):
    blind = Facts("n2", datetime.now(timezone.utc), {"smi": Unknown("nvidia-smi is not installed")})
    assert list(fabric_of([a_host("n1"), a_host("n2")], {"n1": facts("n1"), "n2": blind}).nodes) == ["n1"]


CABLES = (
    Cable(End("CA", "1111000000000000", 1, "whatever"), End("SW", "f", 3, "leaf-a"), "4x NDR"),
    Cable(End("SW", "f", 3, "leaf-a"), End("CA", "1111000000000000", 1, "whatever"), "4x NDR"),
    Cable(End("CA", "eeee000000000000", 1, "n2 mlx5_3"), End("SW", "f", 4, "leaf-b"), "4x NDR"),
    Cable(End("CA", "1111000000000001", 1, "x"), End("CA", "1111000000000002", 1, "x"), "4x NDR"),
)


def test_leaves_are_found_by_guid_or_by_the_name_of_a_port():
    told = {"n1": facts("n1"), "n2": facts("n2")}
    assert by_cables(CABLES, told) == {("n1", "mlx5_0"): "leaf-a", ("n2", "mlx5_3"): "leaf-b"}


def test_leaves_are_found_by_the_interface_of_a_gid():
    table = (Gid("mlx5_0", 1, 3, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth2"),)
    told = {"n1": Facts("n1", datetime.now(timezone.utc), {"gids": table}), "n2": facts("n2")}
    neighbours = {"n1": {"eth2": "leaf-a", "eno1": "oob"}, "n2": Unknown("lldpctl is not installed")}
    assert by_neighbours(neighbours, told) == {("n1", "mlx5_0"): "leaf-a"}


class Nodes:
    """A pool whose nodes answer as told; ``asked`` notes who was asked what."""

    def __init__(self, answers):
        self.answers, self.asked = answers, []

    def ask(self, questions, names):
        self.asked += [(name, question) for name in names for question in questions]
        return {
            name: [Completed(name, q, *self.answers.get((name, q), (127, ""))) for q in questions] for name in names
        }


LINE = "CA 1 1 0x1111000000000000 4x NDR - SW 3 17 0x946dae0300bb0001 ( 'a' - 'leaf-a' )\n"


def test_one_node_is_asked_for_an_infiniband_fabric_and_another_if_it_may_not_tell():
    told = {name: facts(name) for name in ("n1", "n2", "n3")}
    nodes = Nodes({("n2", ibnetdiscover.QUESTION): (0, LINE)})
    assert leaves_of(nodes, told) == {("n1", "mlx5_0"): "leaf-a"}
    assert nodes.asked == [("n1", ibnetdiscover.QUESTION), ("n2", ibnetdiscover.QUESTION)]
    assert leaves_of(Nodes({}), told) == {}


def test_every_node_of_an_ethernet_fabric_is_asked_for_its_neighbours():
    told = {name: facts(name, layer="Ethernet") for name in ("n1", "n2")}
    nodes = Nodes({})
    assert leaves_of(nodes, told) == {}
    assert nodes.asked == [("n1", lldp.question), ("n2", lldp.question)]


PORTS = {
    "two-leaves.txt": ("946d:ae03:00bb:7711", "leaf-b"),
    "aggregation-node.txt": ("b83f:d203:00ee:1138", "L07-leaf-IB01"),
    "treydock-test.out": ("506b:4b03:00cc:02a6", "ib-i4l1s01"),
    "treydock-test2.out": ("b83f:d203:00da:1138", "5FB0405-leaf-IB01"),
}


@pytest.mark.parametrize("path", outputs("ibnetdiscover"), ids=lambda path: path.name)
def test_a_captured_fabric_tells_the_leaf_of_a_port(path):
    guid, leaf = PORTS[path.name]
    cables = ibnetdiscover.parse_ibnetdiscover(path.read_text())
    port = IbPort("mlx5_0", 1, "Active", "LinkUp", 100.0, "InfiniBand", guid=guid)
    told = {"n1": Facts("n1", datetime.now(timezone.utc), {"ib_ports": (port,)})}
    assert by_cables(cables, told) == {("n1", "mlx5_0"): leaf}
