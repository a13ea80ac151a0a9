import itertools
import statistics

import pytest

from gpuops.errors import InputError
from gpuops.isolation.cabling import LINE_GB_PER_S, Cabling, build_fabric
from gpuops.isolation.cases import draw_case
from gpuops.isolation.faults import FabricFault, fabric_leaves, masking_faults, parse_fault
from gpuops.isolation.rounds import RankGroup, Round
from gpuops.isolation.simulation import EFFICIENCY, NVLS_GB_PER_S, QUIET, Disturbances, Simulation, Tenant

FABRIC = build_fabric(Cabling(nodes=32, gpus=8, unit=8, leaves=8))
SHARED = build_fabric(Cabling(nodes=32, gpus=8, unit=8, leaves=1))
LINE = LINE_GB_PER_S * EFFICIENCY
SILENT = Disturbances(noise=0)


def figure(*texts, group, fabric=FABRIC, disturbances=SILENT, **rest):
    faults = [parse_fault(text, fabric) for text in texts]
    return Simulation(fabric, faults, disturbances, **rest).measure(Round("group", (group,)))[0]


def rail(one, other, number=3):
    return RankGroup((one, other), number)


@pytest.mark.parametrize(
    ("fault", "slow", "fine"),
    [
        ("gpu001:slow=30", [RankGroup(("gpu001",)), rail("gpu001", "gpu002")], [rail("gpu002", "gpu003")]),
        ("gpu001:mlx5_3:slow=30", [rail("gpu001", "gpu009")], [RankGroup(("gpu001",)), rail("gpu001", "gpu009", 2)]),
        ("leaf:L3:slow=30", [rail("gpu001", "gpu002"), rail("gpu001", "gpu009")], [rail("gpu001", "gpu002", 2)]),
        ("unit:U0/rail3:slow=30", [rail("gpu001", "gpu009")], [rail("gpu001", "gpu002"), rail("gpu009", "gpu017")]),
        (
            "gpu001:gpu3:slow=30",
            [RankGroup(("gpu001",)), RankGroup(("gpu001",), gpus=(2, 3)), RankGroup(("gpu001", "gpu002"))],
            [rail("gpu001", "gpu002"), RankGroup(("gpu001",), gpus=(4, 5))],
        ),
    ],
)
def test_a_fault_slows_all_that_passes_it_by_its_percentage_and_nothing_else(fault, slow, fine):
    for group in slow:
        healthy = figure(group=group).gb_per_s
        assert figure(fault, group=group).gb_per_s == pytest.approx(0.7 * healthy), group
    for group in fine:
        assert figure(fault, group=group) == figure(group=group), group


def test_a_hang_never_ends_and_names_who_did_not_arrive_where_the_engine_can_tell():
    group = rail("gpu001", "gpu002")
    told = figure("gpu001:hang", group=group)
    assert (told.gb_per_s, told.trouble, told.absent) == (None, "hang", ("gpu001",))
    assert figure("gpu001:hang", group=group, reports_missing=False).absent == ()
    assert figure("leaf:L3:hang", group=group).absent == ()
    assert figure("gpu001:gpu3:hang", group=RankGroup(("gpu001", "gpu002"))).absent == ("gpu001:gpu3",)


def test_a_full_node_pair_cannot_see_a_nic_that_is_a_third_slow():
    pair = RankGroup(("gpu001", "gpu002"))
    assert figure("gpu001:mlx5_3:slow=30", group=pair).gb_per_s == NVLS_GB_PER_S == figure(group=pair).gb_per_s


def test_a_group_is_as_fast_as_its_worst_rail():
    nodes = tuple(FABRIC.nodes)
    assert figure(group=RankGroup(nodes)).gb_per_s == pytest.approx(8 * LINE)
    assert figure("gpu009:mlx5_3:slow=40", group=RankGroup(nodes)).gb_per_s == pytest.approx(0.6 * 8 * LINE)


def test_transfers_of_one_round_share_what_a_leaf_has_towards_the_spine():
    simulation = Simulation(FABRIC, (), SILENT, oversubscription=2)
    first, second = list(FABRIC.units.values())[:2]
    groups = tuple(rail(one, other) for one, other in zip(first, second, strict=True))
    for used, share in ((8, 1 / 2), (6, 2 / 3), (4, 1), (1, 1)):
        figures = simulation.measure(Round("rail", groups[:used]))
        assert [f.gb_per_s for f in figures] == pytest.approx([share * LINE] * used)
    inside = simulation.measure(Round("rail", tuple(rail(*pair) for pair in itertools.pairwise(first))))
    assert [f.gb_per_s for f in inside] == pytest.approx([LINE] * 7)


def test_a_tenant_takes_bandwidth_for_its_rounds_only():
    first, second = list(FABRIC.units.values())[:2]
    planned = Round("rail", tuple(rail(one, other) for one, other in zip(first, second, strict=True)))
    simulation = Simulation(FABRIC, (), Disturbances(noise=0, tenants=(Tenant("L3", 0.4, range(1, 2)),)))
    shares = [statistics.median(f.gb_per_s for f in simulation.measure(planned)) / LINE for _ in range(3)]
    assert shares == pytest.approx([1, 0.6, 1])


def test_collisions_halve_some_crossing_pairs_for_one_round_and_never_a_pair_of_one_unit():
    simulation = Simulation(FABRIC, (), Disturbances(noise=0, collisions=0.3))
    first, second = list(FABRIC.units.values())[:2]
    across = Round("rail", tuple(rail(a, b, k) for a, b in zip(first, second, strict=True) for k in range(8)))
    figures = [f.gb_per_s / LINE for f in simulation.measure(across)]
    assert {round(share, 2) for share in figures} == {1.0, 0.5, 0.33}
    inside = Round("rail", tuple(rail(first[0], first[1], k) for k in range(8)))
    assert {f.gb_per_s for f in simulation.measure(inside)} == {LINE}


def test_figures_rise_while_the_fabric_warms_up():
    simulation = Simulation(FABRIC, (), Disturbances(noise=0, drift=0.08))
    planned = Round("rail", (rail("gpu001", "gpu002"),))
    assert [simulation.measure(planned)[0].gb_per_s / LINE for _ in range(3)] == pytest.approx([0.92, 0.96, 0.98])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("gpu001:mlx5_3", "is not a fault"),
        ("gpu001:slow=100", "is not a fault"),
        ("gpu001:slow=0", "is not a fault"),
        ("gpu099:hang", 'no node named "gpu099"'),
        ("gpu001:mlx5_9:hang", 'gpu001 has no part named "mlx5_9"'),
        ("leaf:L99:hang", 'no leaf named "L99"'),
        ("unit:U9/rail3:hang", 'no part named "unit:U9/rail3"'),
        ("unit:U1/rail8:hang", 'no part named "unit:U1/rail8"'),
    ],
)
def test_a_fault_that_means_nothing_is_refused(text, what):
    with pytest.raises(InputError, match=what):
        parse_fault(text, FABRIC)


def test_a_rail_joins_nothing_where_there_is_one_unit():
    with pytest.raises(InputError, match="carries no traffic"):
        parse_fault("unit:U0/rail0:hang", build_fabric(Cabling(nodes=4, unit=4)))


def test_what_is_hidden_is_all_behind_something_as_bad():
    def hidden(fault, *others, fabric=FABRIC):
        faults = [parse_fault(text, fabric) for text in (fault, *others)]
        return [str(hider) for hider in masking_faults(faults[0], faults, fabric)]

    assert hidden("gpu001:mlx5_3:slow=20", "leaf:L3:slow=30") == ["leaf:L3:slow=30"]
    assert hidden("gpu001:mlx5_3:slow=40", "leaf:L3:slow=30") == []
    assert hidden("gpu001:mlx5_3:slow=20", "leaf:L2:slow=30", "gpu002:hang") == []
    assert hidden("gpu001:gpu3:slow=20", "gpu001:hang") == ["gpu001:hang"]
    assert hidden("gpu001:slow=20", "gpu001:gpu3:hang") == []
    assert hidden("unit:U0/rail3:slow=20", "leaf:L3:slow=20") == ["leaf:L3:slow=20"]
    assert hidden("leaf:L3:slow=20", "unit:U0/rail3:hang") == []
    two = build_fabric(Cabling(nodes=16, unit=8))
    assert hidden("unit:U0/rail3:slow=20", "unit:U1/rail3:hang", fabric=two) == ["unit:U1/rail3:hang"]
    assert hidden("unit:U0/rail3:slow=20", "leaf:L11:hang", fabric=two) == ["leaf:L11:hang"]
    assert hidden("unit:U0/rail3:slow=20", "unit:U1/rail3:hang") == []


def test_units_and_leaves_follow_the_wiring():
    assert (len(FABRIC.units), len(fabric_leaves(FABRIC)), len(fabric_leaves(SHARED))) == (4, 32, 4)
    assert FABRIC.nodes["gpu009"].nics[3].leaf == "L11"
    mixed = build_fabric(Cabling(nodes=32, unit=8, leaves=2, shuffled=True))
    assert sorted(len(names) for names in mixed.units.values()) == [8, 8, 8, 8]
    assert list(mixed.units["U0"]) != list(mixed.nodes)[:8]


def test_cases_come_from_their_seed_alone_and_cover_what_can_happen():
    cases = [draw_case(128, seed) for seed in range(200)]
    assert cases == [draw_case(128, seed) for seed in range(200)]
    faults = [fault for case in cases for fault in case.faults]
    assert {len(case.faults) for case in cases} == {0, 1, 2, 3, 4, 5}
    assert {fault.percent for fault in faults} >= {None, 10, 60}
    assert all(fault.percent is None or 10 <= fault.percent <= 60 for fault in faults)
    shapes = {"".join("#" if letter.isdigit() else letter for letter in fault.part) for fault in faults}
    assert {"gpu###", "gpu###:gpu#", "gpu###:mlx#_#", "leaf:L#", "unit:U#/rail#"} <= shapes
    assert any(share_a_leaf(case) for case in cases)
    quiet = draw_case(128, 7, disturbed=False)
    assert (quiet.faults, quiet.disturbances) == (draw_case(128, 7).faults, QUIET)


def share_a_leaf(case):
    ports = {f"{n.name}:{nic.name}": nic.leaf for n in case.fabric.nodes.values() for nic in n.nics}
    leaves = [ports.get(fault.part, fault.part.removeprefix("leaf:")) for fault in case.faults]
    return len(set(leaves)) < len(leaves)


def test_the_same_case_measures_the_same_figures():
    case = draw_case(16, 3)
    planned = Round("rail", (rail("gpu000", "gpu001"), rail("gpu002", "gpu015")))
    assert case.simulation().measure(planned) == case.simulation().measure(planned)


def test_a_fault_writes_itself_as_it_is_typed():
    for text in ("gpu001:mlx5_3:slow=30", "leaf:L3:hang"):
        assert str(parse_fault(text, FABRIC)) == text
    assert FabricFault("leaf:L3", None).remaining_ratio == 0
