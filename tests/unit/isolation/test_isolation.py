import dataclasses
import doctest
import math

import pytest
from tests.conftest import CI

from gpuops import isolation
from gpuops.isolation import blame, max_rounds, next_round
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.cases import Case, draw_case
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.faults import parse_fault
from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.isolation.simulation import Disturbances, Tenant
from gpuops.isolation.trials import run

pytestmark = pytest.mark.sampled

RAILS = Cabling(nodes=64, gpus=8, unit=16, leaves=8)
SHARED = Cabling(nodes=64, gpus=8, unit=16, leaves=1, oversubscription=2.0)
NOISE = Disturbances(noise=0.015, collisions=0.04, drift=0.06)


def trial(*faults, cabling=RAILS, disturbances=NOISE, mapped=True, seed=3, **rest):
    planted = tuple(parse_fault(text, build_fabric(cabling)) for text in faults)
    return run(Case(cabling, planted, disturbances, mapped, seed=seed, **rest))


def accused(found):
    return {(accusation.part, accusation.kind) for accusation in found.blame.blamed}


def test_the_packages_own_example_comes_out_as_it_says():
    results = doctest.testmod(isolation)
    assert (results.failed, results.attempted > 10) == (0, True)


@pytest.mark.parametrize(
    "cabling",
    [pytest.param(RAILS, id="leaf per rail"), pytest.param(SHARED, id="one leaf, 2:1", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("what", ["slow=12", pytest.param("slow=35", marks=pytest.mark.long), "hang"])
@pytest.mark.parametrize("part", ["gpu017", "gpu017:gpu3", "gpu017:mlx5_3", "leaf:L3", "unit:U2/rail3"])
def test_every_kind_of_fault_is_named_and_nobody_else(part, what, cabling):
    found = trial(f"{part}:{what}", cabling=cabling)
    assert accused(found) == {(part, what.partition("=")[0])}
    assert not found.ambiguous
    assert found.rounds <= 2 * math.ceil(math.log2(64)) + 6 + 4


@pytest.mark.parametrize("cabling", [RAILS, SHARED], ids=["leaf per rail", "one leaf, 2:1"])
@pytest.mark.parametrize("mapped", [True, False])
def test_nobody_is_accused_where_nothing_is_wrong(cabling, mapped):
    found = trial(cabling=cabling, mapped=mapped)
    assert (accused(found), found.blame.suspects) == (set(), ())
    assert found.blame.contention


def test_faults_behind_a_leaf_at_fault_are_named_where_they_are_worse():
    found = trial("leaf:L3:slow=20", "gpu004:mlx5_3:slow=50", "gpu005:mlx5_3:hang", "unit:U0/rail3:slow=35")
    assert accused(found) == {
        ("leaf:L3", "slow"),
        ("gpu004:mlx5_3", "slow"),
        ("gpu005:mlx5_3", "hang"),
        ("unit:U0/rail3", "slow"),
    }


SMALL = Cabling(nodes=16, gpus=8, unit=4, leaves=8)
TWO_UNITS = Cabling(nodes=16, gpus=8, unit=8, leaves=1)
FINE = Disturbances(noise=0.002)


def test_the_way_to_the_spine_is_named_where_all_that_crosses_passes_a_leaf_at_fault():
    found = trial("leaf:L1:slow=31", "unit:U1/rail3:slow=47", cabling=TWO_UNITS, disturbances=FINE)
    assert not found.missed
    assert not found.false_positives


def test_a_leaf_that_only_one_of_its_nics_shows_is_blamed_or_a_suspect():
    faults = ("leaf:L10:slow=15", "gpu004:mlx5_2:slow=38", "gpu005:mlx5_2:slow=23", "gpu007:mlx5_2:slow=35")
    found = trial(*faults, cabling=SMALL, disturbances=FINE)
    assert not found.false_positives
    assert {"gpu004:mlx5_2", "gpu007:mlx5_2"} <= {part for part, _ in accused(found)}
    assert "leaf:L10" in {*(part for part, _ in accused(found)), *found.blame.suspects}


def test_a_nic_that_hung_once_and_never_was_well_is_asked_again():
    faults = ("gpu004:mlx5_7:hang", "gpu007:mlx5_7:hang", "unit:U2/rail7:hang")
    found = trial(*faults, cabling=SMALL, disturbances=FINE)
    assert not found.missed
    assert not found.false_positives


def test_a_group_that_was_measured_as_a_unit_is_not_measured_as_all():
    fabric = build_fabric(Cabling(nodes=16, unit=8, leaves=8))
    late = set(fabric.units["U1"][:7])  # each of them alone is slow, so only U0 is left for a group

    def rate(group):
        return 24.0 + 3.0 * int(group.nodes[0][3:]) % 7 if late & set(group.nodes) else 48.5 * 8

    _, evidence = measured_by_hand(fabric, rate, ("pair", "group"))
    rounds = [m.round for m in evidence.rounds if m.round.scope == "group" and not m.round.why.endswith("again")]
    groups = [group for planned in rounds for group in planned.groups]
    assert len(groups) == len({frozenset(group.nodes) for group in groups})


def test_what_a_worse_fault_hides_is_not_made_up():
    found = trial("leaf:L3:slow=50", "gpu004:mlx5_3:slow=20")
    assert accused(found) == {("leaf:L3", "slow")}
    assert not found.missed


def test_another_tenants_traffic_accuses_nobody():
    tenants = (Tenant("L3", 0.5, range(1, 4)), Tenant("L9", 0.5, range(4, 7)))
    assert accused(trial(disturbances=dataclasses.replace(NOISE, tenants=tenants))) == set()


def test_without_leaves_a_nic_is_named_and_a_leaf_is_told_but_nobody_accused_of_it():
    assert accused(trial("gpu017:mlx5_3:slow=30", mapped=False)) == {("gpu017:mlx5_3", "slow")}
    found = trial("leaf:L3:slow=30", mapped=False)
    assert accused(found) == set()
    assert any("rail 3: slow like others" in text for text in found.blame.unclear)


def test_of_two_units_the_rail_of_either_may_be_at_fault():
    found = trial("unit:U1/rail3:slow=30", cabling=Cabling(nodes=16, gpus=8, unit=8, leaves=8), disturbances=FINE)
    (accusation,) = found.blame.blamed
    assert {accusation.part, *accusation.alternatives} == {"unit:U0/rail3", "unit:U1/rail3", "spine"}


def test_the_chain_of_evidence_is_told():
    found = trial("gpu017:mlx5_3:slow=35")
    (accusation,) = found.blame.blamed
    assert accusation.found_gb_per_s == pytest.approx(0.65 * 48.5, rel=0.03)
    assert accusation.expected_gb_per_s == pytest.approx(48.5, rel=0.02)
    assert len(accusation.partners) >= 4
    assert accusation.units >= 2
    told, others = accusation.evidence
    assert told.endswith(f"GB/s with {len(accusation.partners)} partners in {accusation.units} units")
    assert others.startswith("its other 7 rails 4")


@pytest.mark.parametrize("scope", ["node", "rail", "pair", "group"])
def test_only_the_scopes_that_were_asked_for_are_planned(scope):
    case = Case(RAILS, (), NOISE)
    engine, evidence = case.simulation(), Evidence(case.declared_fabric, scopes=(scope,))
    while (planned := next_round(evidence)) is not None:
        assert planned.scope == scope
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, engine.measure(planned))))
    assert evidence.rounds


@pytest.mark.parametrize("mapped", [True, False])
def test_groups_of_a_round_share_no_part_of_a_node(mapped):
    for measured in trial("leaf:L3:slow=30", "gpu020:slow=20", "gpu021:gpu2:hang", mapped=mapped).evidence.rounds:
        seen = set()
        for group in measured.round.groups:
            parts = {(node, group.rail, gpu) for node in group.nodes for gpu in group.gpus or (None,)}
            assert not parts & seen
            seen |= parts


def test_a_suspect_nic_has_new_partners_in_its_unit_and_all_pairs_of_the_round_are_undisturbed():
    found = trial("gpu017:mlx5_3:slow=10", cabling=SHARED)
    fabric, told = found.case.fabric, [m for m in found.evidence.rounds if "suspect" in m.round.why]
    assert told
    own = [g for m in told for g in m.round.groups if "gpu017" in g.nodes]
    partners = {name for group in own for name in group.nodes} - {"gpu017"}
    assert len(partners) == len(own) >= 2
    assert {fabric.unit_of[name] for name in partners} == {"U1"}
    assert all(len(m.round.groups) > len(own) / len(told) for m in told)  # beside controls


def test_an_uplink_is_blamed_only_if_it_is_slow_while_one_transfer_has_it_to_itself():
    found = trial("unit:U2/rail3:slow=30", disturbances=FINE)
    assert accused(found) == {("unit:U2/rail3", "slow")}
    fabric, told = found.case.fabric, [m for m in found.evidence.rounds if "suspect" in m.round.why]
    for measured in told:
        crossing = [g for g in measured.round.groups if len({fabric.unit_of[name] for name in g.nodes}) == 2]
        leaves = [fabric.leaf_of[name, g.rail] for g in crossing for name in g.nodes]
        assert len(leaves) == len(set(leaves)) > 2


def ethernet(count):
    names = [f"h{number}" for number in range(count)]
    return Fabric({name: FabricNode(name, (), (FabricNic("eth0", 0, 0.025),)) for name in names})


def measured_by_hand(fabric, rate, scopes=("rail", "group"), most=60):
    """``rate`` gives a figure for a group: GB/s, or the name of its trouble."""
    evidence = Evidence(fabric, scopes=scopes)
    while (planned := next_round(evidence)) is not None and len(evidence.rounds) < most:
        said = [rate(group) for group in planned.groups]
        figures = tuple(
            GroupResult(group, None, value) if isinstance(value, str) else GroupResult(group, value)
            for group, value in zip(planned.groups, said, strict=True)
        )
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, figures)))
    return blame(evidence), evidence


@pytest.mark.parametrize("count", [3, 4, 5, 8])
@pytest.mark.parametrize(("value", "kind"), [(0.018, "slow"), ("hang", "hang"), ("unreachable", "unreachable")])
def test_hosts_with_one_interface_and_no_leaves_are_told_apart(count, value, kind):
    said, _ = measured_by_hand(ethernet(count), lambda group: value if "h1" in group.nodes else 0.0242)
    assert [(a.part, a.kind, a.alternatives) for a in said.blamed] == [("h1", kind, ("h1:eth0",))]
    assert measured_by_hand(ethernet(count), lambda _: 0.0242)[0].blamed == ()


def test_two_hosts_are_a_pair_of_which_either_may_be_at_fault():
    said, _ = measured_by_hand(ethernet(2), lambda _: "hang")
    assert not said.blamed
    (sentence,) = (each for each in said.unclear if "one pair" in each)
    assert set(sentence.parts) == {"h0", "h1", "h0:eth0", "h1:eth0"}


def test_who_did_not_arrive_is_at_fault_also_of_two():
    fabric = ethernet(2)
    evidence = Evidence(fabric, scopes=("rail",))
    while (planned := next_round(evidence)) is not None:
        figures = tuple(GroupResult(group, None, "hang", ("h1",)) for group in planned.groups)
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, figures)))
    assert [(a.part, a.alternatives) for a in blame(evidence).blamed] == [("h1", ())]


def test_one_node_has_nothing_between_nodes():
    said, evidence = measured_by_hand(
        build_fabric(Cabling(nodes=1, unit=1)), lambda _: 470.0, ("node", "rail", "pair", "group")
    )
    assert [m.round.scope for m in evidence.rounds] == ["node"]
    assert said.blamed == ()


def test_nodes_with_other_nics_or_none_are_measured_as_far_as_they_go():
    rails = {"a": (0, 1), "b": (0, 1), "c": (1,), "d": (), "e": (0, 1), "f": (0, 1)}
    fabric = Fabric(
        {n: FabricNode(n, (), tuple(FabricNic(f"mlx5_{k}", k, 50.0, f"L{k}") for k in own)) for n, own in rails.items()}
    )
    said, evidence = measured_by_hand(fabric, lambda g: 30.0 if "a" in g.nodes and g.rail == 1 else 48.0, ("rail",))
    assert [accusation.part for accusation in said.blamed] == ["a:mlx5_1"]
    assert not any("d" in group.nodes for measured in evidence.rounds for group in measured.round.groups)
    bare = Fabric({name: FabricNode(name, (0, 1), ()) for name in "ab"})
    assert measured_by_hand(bare, lambda _: 48.0, ("rail",))[1].rounds == ()


def test_a_node_that_fails_with_all_its_partners_is_named():
    said, _ = measured_by_hand(ethernet(4), lambda group: "error" if "h1" in group.nodes else 0.0242)
    assert [(a.part, a.kind, a.alternatives) for a in said.blamed] == [("h1", "error", ("h1:eth0",))]


def only_in_groups(culprit):
    """Pairs are all well, and so are small groups: only groups of more than four are slow for ``culprit``."""

    def rate(group: RankGroup) -> float:
        if len(group.nodes) == 1:
            return 470.0
        full = 48.5 if group.rail is not None else 388.0
        return full * (0.5 if culprit in group.nodes and len(group.nodes) > 4 else 1.0)

    return rate


@pytest.mark.parametrize("culprit", ["gpu000", "gpu021", "gpu031"])
def test_a_node_that_only_a_large_group_shows_is_found_by_halving_it(culprit):
    fabric = build_fabric(Cabling(nodes=32, unit=4, leaves=8))
    said, evidence = measured_by_hand(fabric, only_in_groups(culprit), ("node", "rail", "pair", "group"))
    assert [accusation.part for accusation in said.blamed] == [culprit]
    assert len(evidence.rounds) <= max_rounds(fabric)


def test_a_unit_whose_nodes_all_slow_groups_down_is_unclear():
    fabric = build_fabric(Cabling(nodes=32, gpus=2, unit=8, leaves=2))
    unit = set(fabric.units["U1"])
    said, _ = measured_by_hand(fabric, lambda g: 60.0 if len(g.nodes) > 2 and unit & set(g.nodes) else 97.0, ("group",))
    assert said.blamed == ()
    (sentence,) = said.unclear
    assert "or what joins U1 to others: 60 of" in sentence
    assert sum(name in sentence for name in unit) > 1


UNITS = Cabling(nodes=64, unit=16, leaves=8)
ALL_SCOPES = ("node", "rail", "pair", "group")


@pytest.mark.parametrize("culprits", [{"gpu005"}, {"gpu005", "gpu041"}, {"gpu000"}, {"gpu063"}])
def test_a_straggler_of_large_groups_is_found_within_its_unit(culprits):
    def rate(group):
        if len(group.nodes) == 1:
            return 470.0
        full = 48.5 if group.rail is not None else 388.0
        return full * (0.7 if culprits & set(group.nodes) and len(group.nodes) >= 12 else 1.0)

    said, evidence = measured_by_hand(build_fabric(UNITS), rate, ALL_SCOPES)
    assert {accusation.part for accusation in said.blamed} == culprits
    assert all(accusation.probability <= 1e-3 for accusation in said.blamed)
    assert len(evidence.rounds) <= 2 * math.ceil(math.log2(64)) + 6 + 4 * len(culprits)


def test_two_stragglers_of_one_unit_are_both_found():
    culprits = {"gpu002", "gpu013"}

    def rate(group):
        full = 48.5 if group.rail is not None else 388.0
        return full * (0.7 if culprits & set(group.nodes) and len(group.nodes) >= 12 else 1.0)

    said, _ = measured_by_hand(build_fabric(UNITS), rate, ("rail", "pair", "group"))
    assert {accusation.part for accusation in said.blamed} == culprits
    assert not any(accusation.alternatives for accusation in said.blamed)


def test_leaves_that_are_slow_under_full_load_are_blamed_together():
    fabric = build_fabric(UNITS)
    unit = set(fabric.units["U1"])

    def rate(group):
        full = 48.5 if group.rail is not None else 388.0
        return full * (0.7 if len(unit & set(group.nodes)) >= 12 else 1.0)

    said, _ = measured_by_hand(fabric, rate, ("rail", "pair", "group"))
    (accusation,) = said.blamed
    assert {accusation.part, *accusation.alternatives} == {f"leaf:L{number}" for number in range(8, 16)}
    assert accusation.probability <= 1e-3


def test_a_unit_that_was_slow_once_accuses_nobody():
    fabric, seen = build_fabric(Cabling(nodes=32, gpus=2, unit=8, leaves=2)), []

    def rate(group):
        seen.append(group)
        return 60.0 if len(seen) <= 4 and "gpu008" in group.nodes else 97.0

    said, _ = measured_by_hand(fabric, rate, ("group",))
    assert (said.blamed, said.unclear) == ((), ())


def test_where_all_large_groups_are_slow_the_spine_is_told_and_nobody_accused():
    fabric = build_fabric(Cabling(nodes=32, unit=4, leaves=8))
    said, _ = measured_by_hand(fabric, lambda group: 388.0 * (0.5 if len(group.nodes) > 4 else 1), ("group",))
    assert said.blamed == ()
    assert any("the spine" in text for text in said.unclear)


def test_all_pairs_below_what_is_expected_are_told_and_nobody_accused():
    fabric = build_fabric(Cabling(nodes=16, unit=8))
    said, evidence = measured_by_hand(fabric, lambda _: 30.0, ("rail",))
    expected = {group: 48.0 for measured in evidence.rounds for group in measured.round.groups}
    assert said.blamed == ()
    told = blame(dataclasses.replace(evidence, expected=expected))
    assert told.blamed == ()
    (cause,) = told.fleet
    assert (cause.kind, cause.where, len(cause.nodes), cause.tested) == ("slow", "between nodes", 16, 16)
    assert (cause.found_gb_per_s, cause.expected_gb_per_s) == (30.0, 48.0)


def test_any_measurement_ends():
    fabric = build_fabric(Cabling(nodes=16, unit=4))
    said = iter(range(10**6))
    _, evidence = measured_by_hand(fabric, lambda _: 20.0 + next(said) % 31, ("node", "rail", "pair", "group"), 1000)
    assert len(evidence.rounds) <= max_rounds(fabric)


def unnamed(trial):
    """The faults that were neither blamed nor named as not yet decided."""
    return [fault for fault in trial.missed if not any(fault.part in text for text in trial.blame.unclear)]


# The whole table is `bench/isolation.py`; here is the beginning of each of its rows.
ROWS = [(16, 5, True), (16, 5, False), (128, 1, True), (128, 1, False)]
LONGER_ROWS = [(16, 20, True), (16, 20, False), (128, 4, True), (512, 1, True)]


@pytest.mark.parametrize(("nodes", "count", "mapped"), LONGER_ROWS if CI else ROWS)
def test_seeded_cases(nodes, count, mapped):
    found = [run(draw_case(nodes, seed, mapped=mapped)) for seed in range(count)]
    assert sum(bool(trial.false_positives) for trial in found) <= count / 50
    if mapped:
        assert sum(bool(unnamed(trial)) for trial in found) <= count / 25
        for trial in found:
            assert trial.rounds <= 2 * math.ceil(math.log2(nodes)) + 12 + 4 * len(trial.case.faults)


@pytest.mark.long
def test_many_suspects_are_measured_as_long_as_the_promise_for_so_many_faults_allows():
    trial = run(draw_case(128, 3000000, mapped=True))
    assert len(trial.case.faults) == 5
    assert trial.missed == ()
    assert trial.rounds <= 2 * math.ceil(math.log2(128)) + 6 + 4 * 5
