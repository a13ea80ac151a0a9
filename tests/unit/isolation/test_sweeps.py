import itertools

import pytest

from gpuops.isolation.cabling import Cabling, build_fabric, build_unmapped_fabric
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.sweeps import pairing_schemes, pairs, round_robin_pairs, sweep

FABRIC = build_fabric(Cabling(nodes=32, gpus=2, unit=8, leaves=2))


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
def test_everybody_meets_everybody_once(count):
    names = [f"n{number}" for number in range(count)]
    rounds = [list(round_robin_pairs(names, number)) for number in range(count - 1 + count % 2)]
    for planned in rounds:
        assert len({name for pair in planned for name in pair}) == 2 * len(planned) == count - count % 2
    met = [frozenset(pair) for planned in rounds for pair in planned]
    assert len(met) == len(set(met)) == count * (count - 1) / 2


def test_who_is_alone_meets_nobody():
    assert list(round_robin_pairs(["n0"], 3)) == []


@pytest.mark.parametrize(("way", "alike"), [("inside", True), ("across", False)])
def test_a_sweep_pairs_every_node_inside_units_or_across(way, alike):
    for number in range(4):
        found = list(pairs(FABRIC, way, number))
        assert sorted(itertools.chain(*found)) == sorted(FABRIC.nodes)
        assert all((FABRIC.unit_of[one] == FABRIC.unit_of[other]) is alike for one, other in found)


@pytest.mark.parametrize("way", ["inside", "across"])
@pytest.mark.parametrize("fabric", [FABRIC, build_fabric(Cabling(nodes=16, gpus=2, unit=8, leaves=2))])
def test_each_sweep_brings_new_partners(fabric, way):
    seen = [frozenset(pair) for number in range(4) for pair in pairs(fabric, way, number)]
    assert len(seen) == len(set(seen))


def test_across_a_units_nodes_meet_several_units_at_once():
    met = {
        FABRIC.unit_of[other if FABRIC.unit_of[one] == "U0" else one]
        for one, other in pairs(FABRIC, "across", 0)
        if "U0" in {FABRIC.unit_of[one], FABRIC.unit_of[other]}
    }
    assert met == {"U1", "U2", "U3"}


def test_a_pair_is_measured_on_the_rails_that_both_have():
    nodes = (
        FabricNode("a", (0, 1), (FabricNic("mlx5_0", 0, 50.0, "L0"), FabricNic("mlx5_1", 1, 50.0, "L1"))),
        FabricNode("b", (0, 1), (FabricNic("mlx5_1", 1, 50.0, "L1"), FabricNic("mlx5_2", 2, 50.0, "L2"))),
        FabricNode("c", (0,), ()),
    )
    fabric = Fabric({node.name: node for node in nodes})
    rails = {(group.nodes, group.rail) for number in range(3) for group in sweep(fabric, "across", number).groups}
    assert {(frozenset(names), rail) for names, rail in rails} == {(frozenset("ab"), 1)}


def test_without_leaves_neighbours_in_the_inventory_are_paired_first():
    bare = build_unmapped_fabric(Cabling(nodes=8, gpus=1, unit=4, leaves=1))
    assert pairing_schemes(bare) == ("inside", "across")
    first = set(list(bare.nodes)[:4])
    assert all((one in first) is (other in first) for one, other in pairs(bare, "inside", 0))
    assert pairing_schemes(build_unmapped_fabric(Cabling(nodes=2, gpus=1, unit=2, leaves=1))) == ("across",)
    assert pairing_schemes(build_fabric(Cabling(nodes=4, gpus=1, unit=4, leaves=1))) == ("inside",)
