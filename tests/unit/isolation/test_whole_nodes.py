"""What only transfers of whole nodes show, in pairs and groups: it is never silent, and no healthy node is blamed."""

import dataclasses
import zlib

import pytest

from gpuops.isolation import blame, next_round
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.rounds import GroupResult

pytestmark = pytest.mark.sampled

EFFICIENCY = 0.962


def unmapped(count, rate=lambda number: 50.0, nics=lambda number: 8, unit=0):
    """Nodes whose leaves are unknown; or, with ``unit``, whose units have a leaf for each rail."""
    nodes = {}
    for number in range(count):
        name = f"h{number:02}"
        leaves = [f"L{number // unit}-{rail}" if unit else None for rail in range(nics(number))]
        own = tuple(FabricNic(f"mlx5_{rail}", rail, rate(number), leaf) for rail, leaf in enumerate(leaves))
        nodes[name] = FabricNode(name, tuple(range(8)), own)
    return Fabric(nodes)


def units(nodes, unit):
    return build_fabric(Cabling(nodes=nodes, gpus=8, unit=unit, leaves=8))


def judged(fabric, share):
    """All rounds of a fabric on which a group keeps ``share`` of what its slowest node allows, or has a trouble."""
    evidence = Evidence(fabric)
    while (planned := next_round(evidence)) is not None:
        figures = []
        for group in planned.groups:
            said = share(group)
            if isinstance(said, tuple):
                figures.append(GroupResult(group, None, said[0], detail=said[1]))
                continue
            rails = fabric.rails if group.rail is None else (group.rail,)
            line = min(sum(fabric.rates.get((name, rail), 0.0) for rail in rails) for name in group.nodes)
            rate = 455.0 if len(group.nodes) == 1 else EFFICIENCY * line
            wobble = 1 + (zlib.crc32(repr((group, len(evidence.rounds))).encode()) % 1001 - 500) / 1e5
            figures.append(GroupResult(group, rate * said * wobble))
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, tuple(figures))))
    return blame(evidence)


def is_large(group):
    return group.rail is None and len(group.nodes) > 2


def is_whole(group):
    return group.rail is None and len(group.nodes) > 1


@pytest.mark.parametrize("trouble", ["wrong", "hang", "error"])
def test_a_group_that_failed_once_is_told_with_the_nodes_own_words(trouble):
    failures = []

    def share(group):
        if is_large(group) and "gpu003" in group.nodes and not failures:
            failures.append(group)
            return trouble, "gpu003: Xid 79"
        return 1.0

    result = judged(units(32, 8), share)
    assert failures
    assert (result.blamed, result.is_incomplete) == ((), True)
    (sentence,) = result.unclear
    assert "gpu003: Xid 79" in sentence
    assert "its nodes worked in other groups" in sentence


@pytest.mark.parametrize(("nodes", "other"), [(16, "gpu011"), (32, "gpu021"), (64, "gpu040")])
@pytest.mark.parametrize("said", [("wrong", "17 of 8192"), 0.7], ids=["wrong", "slow"])
def test_two_nodes_that_disturb_only_each_other_blame_neither(nodes, other, said):
    result = judged(
        units(nodes, 8), lambda group: said if is_large(group) and {"gpu003", other} <= {*group.nodes} else 1.0
    )
    assert result.blamed == ()
    assert result.unclear or result.contention
    if said != 0.7:
        assert any("17 of 8192" in sentence for sentence in result.unclear)


@pytest.mark.parametrize(("nodes", "unit"), [(12, 12), (16, 8), (16, 16), (24, 8), (32, 8), (48, 16)])
@pytest.mark.parametrize("said", [("error", "gpu003: Xid 79"), 0.8], ids=["error", "slow"])
def test_a_node_that_disturbs_all_groups_is_blamed(nodes, unit, said):
    (blamed,) = judged(
        units(nodes, unit), lambda group: said if is_large(group) and "gpu003" in group.nodes else 1.0
    ).blamed
    assert blamed.part == "gpu003"
    if said == 0.8:
        assert blamed.kind == "slow"
    else:
        assert blamed.kind == "error"
        assert blamed.evidence[0].startswith("failed in ")
        assert "gpu003: Xid 79" in blamed.evidence


@pytest.mark.parametrize("count", [12, 20])
@pytest.mark.parametrize("said", [("error", "h03: Xid 79"), 0.5], ids=["error", "slow"])
def test_a_node_that_is_bad_only_as_a_whole_is_blamed_without_a_map(count, said):
    result = judged(unmapped(count), lambda group: said if is_whole(group) and "h03" in group.nodes else 1.0)
    assert [each.part for each in result.blamed] == ["h03"]


def test_a_busy_fabric_without_a_map_hides_no_slow_node():
    turn = iter(range(10**6))

    def share(group):
        if is_whole(group):
            return 0.5 if "h05" in group.nodes else 1.0
        return 0.6 if group.rail is not None and zlib.crc32(str(next(turn)).encode()) % 100 < 12 else 1.0

    result = judged(unmapped(12), share)
    assert {each.part for each in result.blamed} <= {"h05"}
    assert "h05" in str(result)


def test_nodes_that_earlier_results_left_out_of_pairs_and_groups_are_named():
    bad = {"h02", "h07", "h09", "h14"}  # each with other nodes of a rail, so that leaves may be at fault
    result = judged(unmapped(16), lambda group: 0.6 if group.rail == 1 and bad & {*group.nodes} else 1.0)
    blamed = {each.part.partition(":")[0] for each in result.blamed}
    told = " ".join(sentence for sentence in result.unclear if "not measured in pairs or groups" in sentence)
    assert bad <= blamed | set(told.replace(",", " ").replace(":", " ").split())


@pytest.mark.parametrize(
    "fabric",
    [
        unmapped(32, rate=lambda number: 25.0 if number in {3, 9, 20, 21} else 50.0, unit=8),
        unmapped(32, nics=lambda number: 4 if number >= 16 else 8, unit=8),
        unmapped(16, nics=lambda number: 7 if number == 3 else 8, unit=8),
    ],
    ids=["slower NICs", "units with fewer NICs", "a NIC less"],
)
def test_nodes_with_other_nics_are_not_compared_with_the_rest(fabric):
    result = judged(fabric, lambda _: 1.0)
    assert (result.blamed, result.unclear, result.suspects, result.fleet) == ((), (), (), ())


def test_a_node_that_lacks_a_nic_is_in_the_unit_of_its_leaves():
    fabric = unmapped(16, nics=lambda number: 7 if number == 3 else 8, unit=8)
    assert [len(names) for names in fabric.units.values()] == [8, 8]


def test_a_node_without_any_nic_ends_no_sweep():
    fabric = unmapped(6, nics=lambda number: 0 if number == 2 else 8, unit=6)
    result = judged(fabric, lambda group: 0.7 if group.rail == 1 and "h04" in group.nodes else 1.0)
    assert [each.part for each in result.blamed] == ["h04:mlx5_1"]


def test_results_above_the_line_rate_are_no_measure_of_a_nic():
    result = judged(units(16, 8), lambda group: 10.0 if group.rail == 2 and "gpu004" in group.nodes else 1.0)
    assert result.blamed == ()
    assert any("gpu004" in sentence and "faster than the line rate" in sentence for sentence in result.unclear)


def test_a_rack_whose_nodes_have_nvlink_between_them_is_not_too_fast():
    result = judged(units(16, 8), lambda group: 10.0 if group.rail is not None else 1.0)
    assert (result.blamed, result.unclear) == ((), ())


def test_a_second_straggler_that_was_in_all_other_groups_is_not_passed_over():
    kept = {"gpu004": 0.58, "gpu015": 0.64}
    result = judged(
        units(16, 8), lambda group: min(kept.get(name, 1.0) for name in group.nodes) if len(group.nodes) >= 12 else 1.0
    )
    assert {each.part for each in result.blamed} <= set(kept)
    assert {each.part for each in result.blamed} == set(kept) or any("measure again" in each for each in result.unclear)


def test_what_all_slow_results_of_two_rounds_have_in_common_is_told():
    told = []

    def share(group):
        if "gpu005" not in group.nodes or len(group.nodes) != 2 or len(told) >= 2:
            return 1.0
        kind = group.rail is None, frozenset(group.nodes)
        if group.rail in {0, None} and kind not in told:
            told.append(kind)
            return 0.6
        return 1.0

    result = judged(units(24, 8), share)
    assert len(told) == 2
    assert result.blamed == ()
    assert any("gpu005" in sentence for sentence in (*result.unclear, *result.suspects))


def test_figures_that_no_nic_can_reach_are_no_measure_for_others():
    large = []

    def share(group):
        if is_large(group):
            large.append(group)
        return 2.0 if is_large(group) and len(large) == 4 else 1.0

    result = judged(units(48, 16), share)
    assert len(large) > 4
    assert (result.blamed, result.suspects, result.fleet) == ((), (), ())
    (sentence,) = result.unclear
    assert "faster than the line rate" in sentence


@pytest.mark.parametrize("levels", [(1.0, 0.8, 1.0, 0.6), (1.0, 0.8, 0.6)])
def test_many_nodes_of_several_speeds_are_one_finding(levels):
    fabric = units(24, 8)
    kept = {name: levels[number % len(levels)] for number, name in enumerate(fabric.nodes)}
    result = judged(fabric, lambda g: min(kept[name] for name in g.nodes) if len(g.nodes) > 1 else 1.0)
    assert result.blamed == ()
    assert [(cause.kind, cause.where) for cause in result.fleet] == [("slow", "between nodes")]


@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_what_few_nodes_have_in_common_tells_nothing(nodes, seed):
    turn = iter(range(10**6))

    def share(group):
        is_slow = len(group.nodes) == 2 and zlib.crc32(repr((seed, next(turn))).encode()) % 12 == 0
        return 0.8 if is_slow else 1.0

    result = judged(units(nodes, nodes), share)
    assert result.blamed == ()
    assert not any("in all slow results" in sentence for sentence in result.unclear)


@pytest.mark.parametrize("every", [2, 3, 4])
def test_a_node_that_is_slow_at_times_is_named_once_and_explains_its_pairs(every):
    evidence = Evidence(units(16, 4))
    while (planned := next_round(evidence)) is not None:
        number, figures = len(evidence.rounds), []
        for group in planned.groups:
            rate = 430.0 if len(group.nodes) == 1 else 48.0 if group.rail is not None else 384.0
            wobble = 1 + (zlib.crc32(repr((group, number)).encode()) % 1001 - 500) / 1e5
            kept = 0.88 if number % every == 1 and "gpu006" in group.nodes else 1.0
            figures.append(GroupResult(group, rate * kept * wobble))
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, tuple(figures))))
    result = blame(evidence)
    assert [(each.part, each.kind) for each in result.blamed] == [("gpu006", "flapping")]
    assert (result.contention, result.suspects, result.unclear) == ((), (), ())
