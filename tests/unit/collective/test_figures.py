import pytest

from gpuops.collective.figures import Figures, to_document
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round

NICS = {unit: tuple(FabricNic(f"mlx5_{r}", r, 50.0, f"L{unit}{r}") for r in range(2)) for unit in range(2)}
FABRIC = Fabric({name: FabricNode(name, (0, 1), NICS[k // 2]) for k, name in enumerate("abcd")})


def measured(scope, *results):
    figures = tuple(GroupResult(RankGroup(tuple(nodes), **more), rate) for nodes, rate, more in results)
    return Measured(Round(scope, tuple(f.group for f in figures)), figures)


def rail(nodes, rate, number=0):
    return nodes, rate, {"rail": number}


def document(*rounds, blamed=()):
    blame = Blame(tuple(BlamedPart(part, "slow") for part in blamed))
    return to_document(Evidence(FABRIC, rounds), blame)


def of_nic(found, node, nic="mlx5_0"):
    return next((each for each in found["nics"] if (each["node"], each["nic"]) == (node, nic)), None)


RAILS = (
    measured("rail", rail("ab", 48.0), rail("cd", 30.0)),
    measured("rail", rail("ac", 47.0), rail("bd", 31.0)),
    measured("rail", rail("ab", 49.0)),
)


def test_spread_is_the_median_distance_from_the_median():
    assert Figures.of([10.0, 11.0, 12.0, 20.0, 10.5]) == Figures(5, 11.0, 10.0, 20.0, pytest.approx(1 / 11))
    assert Figures.of([10.0]).spread is None


def test_nic_has_the_results_of_all_of_its_partners():
    found = document(*RAILS)
    assert of_nic(found, "a") == {
        "node": "a",
        "nic": "mlx5_0",
        "rail": 0,
        "results": 3,
        "median_gb_per_s": 48.0,
        "lowest_gb_per_s": 47.0,
        "highest_gb_per_s": 49.0,
        "spread": pytest.approx(1 / 48),
        "blamed": False,
    }
    assert of_nic(found, "a", "mlx5_1") is None


@pytest.mark.parametrize("part", ["d:mlx5_0", "d:gpu0", "d"])
def test_result_with_a_blamed_partner_does_not_count_for_the_nic_or_the_fleet(part):
    found = document(*RAILS, blamed=[part])
    assert (of_nic(found, "b")["lowest_gb_per_s"], of_nic(found, "b")["results"]) == (48.0, 2)
    assert (of_nic(found, "c")["results"], of_nic(found, "c")["blamed"]) == (1, False)
    assert (of_nic(found, "d")["median_gb_per_s"], of_nic(found, "d")["blamed"]) == (30.5, True)
    (fleet,) = found["fleet"]
    assert (fleet["scope"], fleet["nodes"], fleet["results"], fleet["median_gb_per_s"]) == ("rail", 2, 3, 48.0)


def test_blamed_part_of_another_rail_changes_nothing():
    found = document(*RAILS, blamed=["d:mlx5_1", "leaf:L11", "unit:U1/rail1"])
    assert of_nic(found, "b")["results"] == 3


@pytest.mark.parametrize(("part", "results"), [("leaf:L10", 2), ("spine", 2), ("leaf:L00", 0)])
def test_blamed_leaf_and_spine_take_the_results_that_cross_them(part, results):
    nic = of_nic(document(*RAILS, blamed=[part]), "a")
    assert (nic["results"] if nic else 0) == results


def test_only_whole_nodes_and_default_settings_count_within_a_node():
    rounds = (
        measured("node", ("a", 470.0, {}), ("b", 300.0, {})),
        measured("node", ("a", 360.0, {"variant": "ring"}), ("b", 99.0, {"gpus": (0, 1)})),
    )
    found = document(*rounds, blamed=["b:gpu1", "a:mlx5_0"])  # a NIC has no part in it
    assert [(each["node"], each["median_gb_per_s"], each["blamed"]) for each in found["nodes"]] == [
        ("a", 470.0, False),
        ("b", 300.0, True),
    ]
    assert [(each["scope"], each["results"]) for each in found["fleet"]] == [("node", 1)]


def test_failed_results_have_no_figures():
    hung = GroupResult(RankGroup(("a", "b"), rail=0), None, "hang")
    assert document(Measured(Round("rail", (hung.group,)), (hung,))) == {"nodes": [], "nics": [], "fleet": []}
