import dataclasses

import pytest

from gpuops.bandwidth import GIB
from gpuops.collective.expectations import Expectations
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.profile import NO_PROFILE, Profile, load

FABRIC = build_fabric(Cabling(8, 8))
NAMES = tuple(FABRIC.nodes)
H100 = load("hgx-h100")


def expecting(fabric=FABRIC, profile=H100, **fields):
    return Expectations(fabric, dict.fromkeys(fabric.nodes, profile), **fields)


@pytest.mark.parametrize(
    ("group", "gb_per_s", "limit", "algorithm"),
    [
        (RankGroup(NAMES[:1]), 466.4, "NVLink", "nvls"),
        (RankGroup(NAMES[:1], variant="ring"), 365, "NVLink", "ring"),
        (RankGroup(NAMES[:1], gpus=(0, 5)), 365, "NVLink", "ring"),
        (RankGroup(NAMES[:2], rail=3), 48, "network", "rail"),
        (RankGroup(NAMES[:4], rail=3), 48, "network", "rail"),
        (RankGroup(NAMES[:2]), 466.4, "NVLink", "nvls"),
        (RankGroup(NAMES), 0.93 * 400 * 63 / 64, "network", "nvls"),
        (RankGroup(NAMES, variant="ring"), 360, "network", "ring"),
    ],
)
def test_each_group_has_its_own_expectation(group, gb_per_s, limit, algorithm):
    expected = expecting().of(group)
    assert expected.gb_per_s == pytest.approx(gb_per_s)
    assert (expected.limit, expected.algorithm) == (limit, algorithm)


def test_without_p2p_nothing_is_expected_nor_of_an_unknown_machine():
    assert expecting().of(RankGroup(NAMES[:1], variant="no-p2p")) is None
    assert expecting(profile=NO_PROFILE).of(RankGroup(NAMES[:2])) is None
    assert Expectations(FABRIC, {}).of(RankGroup(NAMES[:1])) is None


PAIR, RAIL, NODE = RankGroup(NAMES[:2]), RankGroup(NAMES[:2], rail=3), RankGroup(NAMES[:1])


@pytest.mark.parametrize(
    ("operation", "group", "gb_per_s", "limit"),
    [
        ("all_gather", NODE, 365, "NVLink"),
        ("reduce_scatter", NODE, 365, "NVLink"),
        ("all_to_all", NODE, 365, "NVLink"),
        ("send_recv", NODE, 365, "NVLink"),
        ("all_gather", RAIL, 48, "network"),
        ("send_recv", RAIL, 48, "network"),
        ("all_gather", PAIR, 365, "NVLink"),  # a ring: two nodes do not double it
        ("reduce_scatter", RankGroup(NAMES), 365, "NVLink"),
        ("all_to_all", PAIR, 48 * 15 / 8, "network"),
        ("all_to_all", RankGroup(NAMES), 48 * 63 / 56, "network"),
        ("send_recv", PAIR, 48, "network"),
        ("send_recv", RankGroup(NAMES), 48, "network"),
    ],
)
def test_other_operations_have_predictions_that_fail_no_node(operation, group, gb_per_s, limit):
    expectations = expecting(operation=operation, size_bytes=8 * GIB)
    expected = expectations.of(group)
    assert (expected.gb_per_s, expected.limit) == (pytest.approx(gb_per_s), limit)
    assert not expected.may_fail
    assert expectations.threshold_for(group) is None


@pytest.mark.parametrize(("operation", "gb_per_s"), [("all_gather", 192), ("all_to_all", 48 / 2 * 15 / 8)])
def test_with_fewer_nics_than_gpus_other_operations_are_slower(operation, gb_per_s):
    few = {name: dataclasses.replace(FABRIC.nodes[name], nics=FABRIC.nodes[name].nics[:4]) for name in NAMES[:2]}
    expected = expecting(Fabric(few), operation=operation, size_bytes=8 * GIB).of(PAIR)
    assert expected.gb_per_s == pytest.approx(gb_per_s)


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "all_to_all", "send_recv"])
def test_of_an_unknown_machine_or_a_small_payload_no_operation_expects_anything(operation):
    for group in (NODE, PAIR, RankGroup(NAMES, variant="no-p2p")):
        assert expecting(profile=NO_PROFILE, operation=operation).of(group) is None
    assert expecting(operation=operation, size_bytes=GIB // 2).of(PAIR) is None
    assert expecting(operation=operation).of(RankGroup(NAMES[:1], variant="no-p2p")) is None


@pytest.mark.parametrize("operation", ["all_gather", "all_to_all", "send_recv"])
def test_where_nvlink_spans_nodes_other_operations_use_no_nic(operation):
    expected = expecting(profile=load("gb200-nvl72"), operation=operation).of(PAIR)
    assert (expected.gb_per_s, expected.limit, expected.grade) == (646.9, "NVLink", "guess")


def linked(*layers):
    ports = {name: FabricNic("mlx5_0", 0, 50.0, link_layer=layer) for name, layer in zip(NAMES, layers, strict=False)}
    nodes = {name: FabricNode(name, tuple(range(8)), (port,) * 8) for name, port in ports.items()}
    return Fabric(nodes)


def test_the_link_layer_of_most_ports_chooses_the_expectation_and_a_profile_beats_it():
    group = RankGroup(NAMES[:3])
    infiniband, ethernet = (expecting(linked(*[layer] * 3)).of(group).gb_per_s for layer in ("InfiniBand", "Ethernet"))
    assert ethernet == pytest.approx(0.9 * infiniband)
    assert expecting(linked("", "", "")).of(group).gb_per_s == infiniband
    assert expecting(linked("Ethernet", "Ethernet", "")).of(group).gb_per_s == ethernet
    declared = H100.expecting({"nic.link_layer": "Ethernet"}, "prod.yml:3:1")
    assert expecting(linked("", "", ""), declared).of(group).gb_per_s == ethernet
    mixed = Expectations(linked("", "", ""), {**dict.fromkeys(NAMES[:3], H100), NAMES[1]: declared})
    assert mixed.of(group).gb_per_s == ethernet


def test_a_guess_is_shown_and_not_judged_by():
    assert expecting().threshold_for(RankGroup(NAMES[:1])) == pytest.approx(0.85 * 466.4)
    assert expecting().of(RankGroup(NAMES[:2], rail=0)) is not None
    assert expecting().threshold_for(RankGroup(NAMES[:2], rail=0)) is None


def test_a_group_is_as_fast_as_its_poorest_node():
    slower = H100.expecting({"nic.rate_gbps": 200}, "prod.yml:3:1")
    mixed = Expectations(FABRIC, {**dict.fromkeys(NAMES, H100), NAMES[5]: slower})
    assert mixed.of(RankGroup(NAMES[4:6], rail=0)).gb_per_s == pytest.approx(24)
    assert mixed.of(RankGroup(NAMES[:2], rail=0)).gb_per_s == pytest.approx(48)
    unknown = Expectations(FABRIC, {**dict.fromkeys(NAMES, H100), NAMES[5]: Profile("mine")})
    assert unknown.of(RankGroup(NAMES[4:6])) is None
    assert unknown.of(RankGroup(NAMES[4:6], rail=0)).gb_per_s == pytest.approx(48)


def test_a_port_that_came_up_with_less_does_not_lower_what_is_expected_of_it():
    fabric = fabric_with_one_slow_port()
    assert expecting(fabric).of(RankGroup(("n0", "n1"), rail=0)).gb_per_s == pytest.approx(48)
    without = expecting(fabric, NO_PROFILE).of(RankGroup(("n0", "n1"), rail=0))
    assert without.gb_per_s == pytest.approx(48)
    assert without.terms[0].source.startswith("the most common rate of the ports here")


def fabric_with_one_slow_port():
    rates = {"n0": 25.0, "n1": 50.0, "n2": 50.0}
    return Fabric({name: FabricNode(name, (0,), (FabricNic("mlx5_0", 0, rate),)) for name, rate in rates.items()})


def test_where_a_node_has_no_nic_nothing_is_expected_between_nodes():
    bare = Fabric({name: FabricNode(name, tuple(range(8)), ()) for name in ("n0", "n1")})
    assert expecting(bare).of(RankGroup(("n0", "n1"))) is None
    assert expecting(bare, NO_PROFILE).of(RankGroup(("n0", "n1"), rail=0)) is None


def test_a_node_with_fewer_nics_bounds_the_group():
    few = dataclasses.replace(FABRIC.nodes[NAMES[0]], nics=FABRIC.nodes[NAMES[0]].nics[:4])
    fabric = Fabric({**FABRIC.nodes, NAMES[0]: few})
    assert expecting(fabric).of(RankGroup(NAMES)).gb_per_s == pytest.approx(0.93 * 200 * 63 / 64)
    assert expecting(fabric).of(RankGroup(NAMES[1:])).gb_per_s == pytest.approx(0.93 * 400 * 55 / 56)


def test_the_payload_counts():
    assert expecting(size_bytes=8 * GIB).of(RankGroup(NAMES[:1])).gb_per_s == pytest.approx(478.9)
    assert expecting(size_bytes=GIB // 2).of(RankGroup(NAMES[:1])) is None


def test_what_the_fleet_gives_is_learnt_and_then_may_fail_a_part():
    pairs = [RankGroup((NAMES[k], NAMES[k + 1]), rail=r) for k in (0, 2, 4, 6) for r in range(8)]
    rates = [47.0] * 30 + [20.0]
    figures = tuple(GroupResult(group, rate) for group, rate in zip(pairs, rates, strict=False))
    hung = GroupResult(pairs[-1], None, "hang")
    evidence = Evidence(FABRIC, (Measured(Round("rail", tuple(pairs)), (*figures, hung)),))
    learnt = expecting().learnt_from(evidence)
    assert learnt.efficiency.learnt == {"rail"}
    assert learnt.threshold_for(RankGroup(NAMES[:2], rail=1)) == pytest.approx(47.0)
    assert expecting().learnt_from(Evidence(FABRIC)) == expecting()


def test_where_no_gpu_takes_part_nothing_is_expected():
    fabric = Fabric({name: FabricNode(name, (), (FabricNic("eth0", 0, 3.125),)) for name in ("a", "b")})
    expectations = Expectations(fabric, dict.fromkeys(fabric.nodes, load("hgx-h100")))
    assert expectations.of(RankGroup(("a", "b"))) is None
    assert expectations.of(RankGroup(("a", "b"), rail=0)) is None
