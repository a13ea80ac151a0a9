import datetime as dt
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.document import Where
from gpuops.errors import LayoutError
from gpuops.facts import Facts
from gpuops.inventory import Host, Port
from gpuops.layout import AXES, Layout, parse_layout
from gpuops.placement import GpuShape, Link, NodeShape, largest_domain, place, shape_of
from gpuops.probes.host.pcie import PcieLink
from gpuops.probes.host.system import System
from gpuops.probes.nvidia.nvidia_smi import Gpu, Smi, SmiError
from gpuops.probes.nvidia.topo import Topology
from gpuops.probing import Unknown
from gpuops.results.kept import shape_document, shape_from

NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.timezone.utc)
RACK_UUID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"


def node(name, gpus=8, clique=8, *, leaves=("L0", "L1"), rack=None, domain=None):
    """A node whose cliques hold ``clique`` GPUs, GPU k on rail k."""
    shapes = tuple(
        GpuShape(k, f"GPU-{k}", "", 0, f"mlx5_{k}", k // clique, k, leaves[k % len(leaves)]) for k in range(gpus)
    )
    links = {
        (a.index, b.index): "NV18" if a.clique == b.clique else "SYS" for a in shapes for b in shapes if a is not b
    }
    return NodeShape(name, name, shapes, tuple(sorted(leaves)), rack, domain or name, links)


def names(placement):
    return [node.name for node in placement.nodes]


def gpus(placement, ranks):
    return [placement.ranks[rank].gpu for rank in ranks]


class TestHuggingFacesDiagrams:
    def test_two_replicas_of_two_stages_pipe_gpu0_to_gpu2_and_gpu1_to_gpu3(self):
        placement = place(parse_layout("dp=2,pp=2"), [node("n1", 4)])
        assert [gpus(placement, group) for group in placement.groups["pp"]] == [[0, 2], [1, 3]]

    def test_three_dimensions_need_eight_gpus(self):
        with pytest.raises(LayoutError, match="dp=2 · pp=2 · tp=2 = 8 GPUs are needed but only 4 are usable"):
            place(parse_layout("dp=2,pp=2,tp=2"), [node("n1", 4)])
        assert len(place(parse_layout("dp=2,pp=2,tp=2"), [node("n1", 8)]).ranks) == 8


class TestTensorParallelGroups:
    def test_fill_a_node_each(self):
        placement = place(parse_layout("tp=8,dp=2"), [node("n1"), node("n2")])
        assert [{placement.ranks[r].node for r in group} for group in placement.groups["tp"]] == [{"n1"}, {"n2"}]

    def test_stay_inside_a_clique_wherever_its_gpus_are_numbered(self):
        mixed = node("n1", 8, 4)
        interleaved = tuple(replace(gpu, clique=gpu.index % 2) for gpu in mixed.gpus)
        placement = place(parse_layout("tp=4,dp=2"), [replace(mixed, gpus=interleaved)])
        assert [gpus(placement, group) for group in placement.groups["tp"]] == [[0, 2, 4, 6], [1, 3, 5, 7]]

    def test_larger_than_the_clique_are_refused_and_can_be_forced(self):
        with pytest.raises(LayoutError, match="TP group of r0 to r7 leaves its NVLink domain and runs over SYS"):
            place(parse_layout("tp=8"), [node("n1", 8, 4)])
        forced = place(parse_layout("tp=8"), [node("n1", 8, 4)], force=True)
        assert forced.link(range(8)) == Link("pcie", "SYS")
        assert "r0 to r7 leaves" in forced.notes[-1]

    def test_whose_ranks_are_nodes_apart_are_refused(self):
        with pytest.raises(LayoutError, match="put tp first in --order"):
            place(parse_layout("tp=8,dp=2", "dp-tp-pp"), [node("n1"), node("n2")])

    def test_do_not_straddle_nodes_where_a_gpu_is_dead(self):
        placement = place(parse_layout("tp=2,dp=6"), [node("n1", 7), node("n2", 7)])
        assert [len(placement.on(name)) for name in ("n1", "n2")] == [6, 6]
        assert placement.notes == ("6 of 7 GPUs are used on n1, n2",)

    def test_cross_nodes_inside_the_domain_of_an_nvl72_rack(self):
        racks = [node(f"n{k}", 4, 4, domain=f"rack{k % 2}") for k in range(36)]
        placement = place(parse_layout("tp=8,dp=18"), racks)
        domains = [{placement.location(rank)[0].domain for rank in group} for group in placement.groups["tp"]]
        assert all(len(domain) == 1 for domain in domains)
        assert placement.link(placement.groups["tp"][0]) == Link("nvlink")
        assert largest_domain(racks) == 72

    def test_leave_over_the_node_of_a_rack_that_has_no_partner(self):
        racks = [node(f"a{k}", 4, 4, domain="a") for k in range(3)] + [
            node(f"b{k}", 4, 4, domain="b") for k in range(2)
        ]
        placement = place(parse_layout("tp=8,dp=2"), racks)
        assert (names(placement), placement.spares) == (["a0", "a1", "b0", "b1"], ("a2",))


class TestNodes:
    def test_stand_in_natural_order(self):
        assert names(place(parse_layout("dp=24"), [node("node10"), node("node2"), node("node1")])) == [
            "node1",
            "node2",
            "node10",
        ]

    def test_of_one_unit_are_neighbours_and_of_one_rack_inside_it(self):
        units = {"n1": ("L0", "r1"), "n2": ("L8", "r3"), "n3": ("L0", "r2"), "n4": ("L16", "r4"), "n5": ("L0", "r1")}
        shapes = [node(name, leaves=(leaf,), rack=rack) for name, (leaf, rack) in units.items()]
        assert names(place(parse_layout("dp=40"), shapes)) == ["n1", "n5", "n3", "n2", "n4"]

    def test_beyond_the_need_are_spares(self):
        placement = place(parse_layout("dp=8"), [node("n2"), node("n10"), node("n1")])
        assert (names(placement), placement.spares, placement.on("n2")) == (["n1"], ("n2", "n10"), ())

    def test_the_last_may_be_filled_in_part(self):
        placement = place(parse_layout("dp=3,tp=4"), [node("n1"), node("n2")])
        assert [len(placement.on(name)) for name in ("n1", "n2")] == [8, 4]
        assert placement.notes == ("4 of 8 GPUs are used on n2",)

    def test_of_equal_size_go_before_one_with_a_dead_gpu(self):
        placement = place(parse_layout("dp=16"), [node("n1"), node("n2", 7), node("n3")])
        assert (names(placement), placement.spares) == (["n1", "n3"], ("n2",))

    def test_smaller_ones_of_equal_size_need_nobodys_leave(self):
        placement = place(parse_layout("dp=8"), [node("n1", 2), node("n2", 4), node("n3", 4)])
        assert names(placement) == ["n2", "n3"]

    def test_of_unequal_size_are_filled_the_largest_first_or_used_as_far_as_they_are_equal(self):
        shapes = [node("n2", 7), node("n1", 8)]
        placement = place(parse_layout("dp=14"), shapes)
        assert [(node.name, len(placement.on(node.name))) for node in placement.nodes] == [("n1", 8), ("n2", 6)]
        placement = place(parse_layout("dp=14"), shapes, allow_fewer=True)
        assert [len(placement.on(name)) for name in ("n1", "n2")] == [7, 7]

    def test_that_are_not_enough_are_counted(self):
        with pytest.raises(LayoutError, match=r"dp=32 = 32 GPUs are needed but only 23 are usable .*2 x 8, 1 x 7"):
            place(parse_layout("dp=32"), [node("n1"), node("n2", 7), node("n3")])
        with pytest.raises(LayoutError, match="only 0 are usable"):
            place(parse_layout("dp=2"), [])

    def test_512_hold_a_rank_on_every_gpu_and_a_tensor_parallel_group_each(self):
        shapes = [node(f"gpu{k}", leaves=(f"L{k // 32}",)) for k in range(512)]
        document = place(parse_layout("dp=32,pp=16,tp=8"), shapes).to_document()
        assert len({(rank["node"], rank["gpu"]) for rank in document["ranks"]}) == 4096
        assert document["ranks"][-1]["node"] == "gpu511"
        node_of = [rank["node"] for rank in document["ranks"]]
        assert {len({node_of[rank] for rank in group}) for group in document["groups"]["tp"]} == {1}


class TestLinks:
    @pytest.fixture
    def placement(self):
        """Stage 0 on n1, stage 1 on n2, one unit."""
        return place(parse_layout("dp=2,pp=2,tp=4"), [node("n1", 8, 4), node("n2", 8, 4)])

    def test_inside_a_node_are_its_own_and_the_weakest_counts(self, placement):
        assert placement.link([0, 1, 2, 3]) == Link("nvlink", "NV18")
        assert placement.link([0, 4]) == Link("pcie", "SYS")
        weaker = {**placement.nodes[0].links, (1, 2): "NV6"}
        worn = replace(placement, nodes=(replace(placement.nodes[0], links=weaker), placement.nodes[1]))
        assert worn.link([0, 1, 2, 3]) == Link("nvlink", "NV6")

    def test_between_nodes_are_a_rail_with_its_leaf_or_the_network(self, placement):
        links = [placement.link(group) for group in placement.groups["pp"][:2]]
        assert links == [Link("rail", rail=0, leaf="L0"), Link("rail", rail=1, leaf="L1")]
        assert placement.link([0, 9]) == Link("network")

    def test_between_units_are_a_rail_over_more_than_one_leaf(self):
        placement = place(parse_layout("dp=2,tp=8"), [node("n1", leaves=("L0",)), node("n2", leaves=("L8",))])
        assert placement.link([0, 8]) == Link("rail", rail=0)

    def test_of_a_rank_by_itself_are_none(self, placement):
        assert placement.link([3]) is None

    def test_of_a_pair_that_is_not_told_are_unknown(self, placement):
        untold = replace(placement.nodes[0], links={})
        assert replace(placement, nodes=(untold, placement.nodes[1])).link([0, 1]) == Link("unknown", "unknown")

    @pytest.mark.parametrize(
        ("link", "text"),
        [
            (Link("nvlink", "NV18"), "NV18"),
            (Link("nvlink"), "NVLink"),
            (Link("pcie", "PIX"), "PIX"),
            (Link("rail", rail=3, leaf="L3"), "rail 3, leaf L3"),
            (Link("rail", rail=3), "rail 3"),
            (Link("network"), "network"),
            (Link("unknown", "unknown"), "unknown"),
        ],
    )
    def test_have_a_word_each(self, link, text):
        assert str(link) == text


def test_the_document_is_json_with_every_rank_and_group():
    document = place(parse_layout("dp=2,pp=2"), [node("n1", 4, rack="r1"), node("n2", 4)]).to_document()
    assert json.loads(json.dumps(document)) == document
    where = {"rank": 3, "node": "n1", "local_rank": 3, "gpu": 3, "nic": "mlx5_3", "numa": 0}
    assert document["ranks"][3] == where | {"dp": 1, "pp": 1, "tp": 0, "cp": 0, "ep": 0}
    assert set(document["groups"]) == set(AXES)
    assert document["groups"]["dp"] == [[0, 1], [2, 3]]
    assert document["nodes"] == [{"name": "n1", "address": "n1", "rack": "r1", "gpus": [0, 1, 2, 3]}]
    assert document["spares"] == ["n2"]


degrees = st.sampled_from([1, 2, 3, 4])
layouts = st.builds(
    Layout, dp=degrees, pp=degrees, tp=degrees, cp=degrees, order=st.sampled_from(["tp-cp-ep-dp-pp", "dp-pp-tp-cp-ep"])
)


@given(layouts, st.lists(st.tuples(st.integers(1, 8), st.sampled_from([2, 4, 8])), min_size=1, max_size=12))
def test_a_placement_uses_each_gpu_once_and_its_groups_part_the_ranks(layout, machines):
    shapes = [node(f"n{number}", *machine) for number, machine in enumerate(machines)]
    try:
        placement = place(layout, shapes, allow_fewer=True)
    except LayoutError:
        return
    there = {(shape.name, gpu.index) for shape in shapes for gpu in shape.gpus}
    seats = [(rank.node, rank.gpu) for rank in placement.ranks]
    assert [rank.rank for rank in placement.ranks] == list(range(layout.ranks))
    assert len(set(seats)) == len(seats)
    assert set(seats) <= there
    assert {rank.node for rank in placement.ranks}.isdisjoint(placement.spares)
    for axis in AXES:
        assert sorted(rank for group in placement.groups[axis] for rank in group) == list(range(layout.ranks))
    for group in placement.groups["tp"]:
        assert len({shape.nvlink_domain(gpu) for shape, gpu in map(placement.location, group)}) == 1
    for rank in placement.ranks:
        shape, gpu = placement.location(rank.rank)
        assert (shape.name, gpu.index) == (rank.node, rank.gpu)
        assert placement.on(rank.node)[rank.local_rank] == rank


FABRIC = {f"mlx5_{k}": Port(rail=k, leaf=f"L{k}") for k in range(4)}


def host(**fields):
    return Host("n1", "10.0.0.1", Where("inventory.yml", 1, 1), rack="r1", **fields)


def cards(count=4, **fields):
    return tuple(Gpu(k, f"0000:{k:02x}:00.0", uuid=f"GPU-{k}", **fields) for k in range(count))


def matrix(count=4, nics=4, gpu_link=lambda _a, _b: "NV4", nic_link=lambda gpu, nic: "PIX" if gpu == nic else "SYS"):
    gpus, names = [f"GPU{k}" for k in range(count)], [f"NIC{k}" for k in range(nics)]
    links = {(f"GPU{a}", f"GPU{b}"): gpu_link(a, b) for a in range(count) for b in range(count) if a != b}
    links |= {(f"GPU{a}", f"NIC{b}"): nic_link(a, b) for a in range(count) for b in range(nics)}
    numa = {gpu: str(k // 2) for k, gpu in enumerate(gpus)}
    legend = {nic: f"mlx5_{k}" for k, nic in enumerate(names)}
    return Topology(tuple(gpus), tuple(names), links, numa_affinity=numa, nic_names=legend)


def facts(**values):
    return Facts("n1", NOON, {"smi": Smi(gpus=cards()), "topo": matrix(), **values})


def nics(shape):
    return [gpu.nic for gpu in shape.gpus]


class TestTheShapeOfANode:
    def test_is_what_its_facts_and_the_inventory_say(self):
        shape = shape_of(host(fabric=FABRIC), facts())
        assert (shape.name, shape.address, shape.rack, shape.domain) == ("n1", "10.0.0.1", "r1", "n1")
        assert shape.leaves == ("L0", "L1", "L2", "L3")
        assert shape.gpus[3] == GpuShape(3, "GPU-3", "0000:03:00.0", 1, "mlx5_3", 0, 3, "L3")
        assert shape.link([0, 1, 2]) == "NV4"

    def test_has_the_memory_of_the_node_and_keeps_it_in_a_record(self):
        machine = System(*("",) * 5, None, "", 2016.0, "", None, {}, "", "", "", virtual=False)
        known = facts(system=machine)
        assert shape_of(host(), known).host_gib == 2016
        assert shape_from(shape_document(host(), known), host()).host_gib == 2016
        assert shape_of(host(), facts()).host_gib is None

    def test_has_a_clique_for_all_that_nvlink_joins(self):
        pairs = shape_of(
            host(), facts(topo=matrix(gpu_link=lambda a, b: "NV2" if {a, b} in ({0, 2}, {1, 3}) else "SYS"))
        )
        assert [gpu.clique for gpu in pairs.gpus] == [0, 1, 0, 1]
        chain = shape_of(host(), facts(topo=matrix(gpu_link=lambda a, b: "NV1" if abs(a - b) == 1 else "PHB")))
        assert len({gpu.clique for gpu in chain.gpus}) == 1

    def test_without_nvlink_is_one_clique_over_pcie(self):
        shape = shape_of(host(), facts(topo=matrix(gpu_link=lambda a, b: "PIX" if a // 2 == b // 2 else "SYS")))
        assert {gpu.clique for gpu in shape.gpus} == {0}
        assert (shape.link([0, 1]), shape.link([0, 1, 2])) == ("PIX", "SYS")

    def test_gives_each_gpu_the_nearest_nic(self):
        crossed = matrix(nic_link=lambda gpu, nic: "PXB" if gpu == 3 - nic else "NODE")
        assert nics(shape_of(host(), facts(topo=crossed))) == ["mlx5_3", "mlx5_2", "mlx5_1", "mlx5_0"]

    def test_gives_gpus_with_equally_near_nics_one_each_by_rail(self):
        equal = facts(topo=matrix(nic_link=lambda *_: "NODE"))
        swapped = {f"mlx5_{k}": Port(rail=3 - k) for k in range(4)}
        assert nics(shape_of(host(), equal)) == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
        assert nics(shape_of(host(fabric=swapped), equal)) == ["mlx5_3", "mlx5_2", "mlx5_1", "mlx5_0"]

    @pytest.mark.parametrize(
        "name", ["mlx5_1\x1b", "\x1b]0;owned\x07", "mlx5_\u202e1", "a b", "", "-x", "a,b", "$(id)", "\u00e9", "x" * 64]
    )
    def test_nic_name_that_no_device_has_is_unknown_with_what_the_node_said(self, name):
        topology = matrix()
        topology = replace(topology, nic_names={**topology.nic_names, [*topology.nic_names][1]: name})
        shape = shape_of(host(), facts(topo=topology))
        assert isinstance(shape, Unknown)
        assert f"the name {name[:80]!a}, which no device has" in shape.why
        assert shape.why.isprintable()

    def test_nic_without_a_name_is_unknown_unless_the_inventory_needs_no_other(self):
        topology = matrix()
        last = [*topology.nic_names][-1]
        named = {nic: name for nic, name in topology.nic_names.items() if nic != last}
        topology = replace(topology, nic_names=named)
        assert "gives no device name for" in shape_of(host(), facts(topo=topology)).why
        assert "gives no device name for" in shape_of(host(fabric=FABRIC), facts(topo=topology)).why
        seen = {name: port for name, port in FABRIC.items() if name in named.values()}
        assert isinstance(shape_of(host(fabric=seen), facts(topo=topology)), NodeShape)

    def test_shares_few_nics_evenly(self):
        assert nics(shape_of(host(), facts(topo=matrix(nics=2, nic_link=lambda *_: "SYS")))) == ["mlx5_0", "mlx5_1"] * 2
        assert nics(shape_of(host(), facts(topo=matrix(nics=0)))) == [None] * 4

    def test_leaves_out_nics_that_the_inventorys_fabric_does_not_name(self):
        two = {name: FABRIC[name] for name in ("mlx5_2", "mlx5_3")}
        assert set(nics(shape_of(host(fabric=two), facts()))) == {"mlx5_2", "mlx5_3"}

    def test_asks_the_kernel_for_the_numa_node_that_topo_does_not_tell(self):
        silent = replace(matrix(), numa_affinity={"GPU0": "0-1", "GPU1": None})
        kernel = {f"0000:{k:02x}:00.0": PcieLink("", None, None, None, None, k) for k in (1, 2)}
        assert [gpu.numa for gpu in shape_of(host(), facts(topo=silent, pcie=kernel)).gpus] == [None, 1, 2, None]
        assert shape_of(host(), facts(topo=silent)).gpus[1].numa is None

    def test_names_the_domain_of_a_rack_only_where_all_gpus_agree(self):
        def domain(*uuids):
            pairs = zip(cards(len(uuids)), uuids, strict=True)
            gpus = tuple(replace(gpu, fabric_cluster_uuid=uuid, fabric_clique_id=7) for gpu, uuid in pairs)
            return shape_of(host(), facts(smi=Smi(gpus=gpus), topo=matrix(len(uuids)))).domain

        assert domain(RACK_UUID, RACK_UUID) == f"{RACK_UUID}.7"
        assert domain(RACK_UUID, None) == "n1"
        assert domain("00000000-0000-0000-0000-000000000000") == "n1"

    def test_does_not_count_gpus_that_are_lost_or_cut_up(self):
        dead, cut = replace(cards()[1], uuid=None), replace(cards()[2], mig_mode=True)
        shape = shape_of(host(), facts(smi=Smi(gpus=(cards()[0], dead, cut, cards()[3]))))
        assert [(gpu.index, gpu.nic) for gpu in shape.gpus] == [(0, "mlx5_0"), (3, "mlx5_3")]

    @pytest.mark.parametrize(
        ("values", "why"),
        [
            ({"smi": Unknown("timed out")}, "timed out"),
            ({"topo": Unknown("cut short")}, "cut short"),
            ({"smi": Smi()}, "no GPU"),
            ({"smi": Smi(error=SmiError("gpu-lost", "GPU is lost"))}, "GPU is lost"),
            ({"topo": matrix(3)}, "shows 4 GPUs, but topo -m GPU0, GPU1, GPU2"),
            ({"topo": replace(matrix(), gpus=("GPU0", "GPUs", "GPU2", "GPU3"))}, "GPUs"),
        ],
    )
    def test_is_unknown_where_gpus_or_links_are(self, values, why):
        shape = shape_of(host(), facts(**values))
        assert isinstance(shape, Unknown)
        assert why in shape.why
