"""Nodes that slow only large groups down are named, and nothing else that makes groups slow accuses a node."""

import dataclasses
import itertools
import math
import random

import pytest

from gpuops.isolation import blame, next_round
from gpuops.isolation.cabling import Cabling, build_fabric, build_unmapped_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.groups.dealing import Deal, even_groups, max_left_out
from gpuops.isolation.groups.readings import GroupReadings
from gpuops.isolation.groups.stragglers import Stragglers
from gpuops.isolation.rounds import GroupResult, RankGroup, Round

pytestmark = pytest.mark.sampled

FULL = 388.0


class Cluster:
    """Groups that healthy nodes would run at ``FULL``: noise and outliers, a loss by size, stragglers, slow uplinks."""

    def __init__(self, cabling, *, late=(), slow_by=0.1, least=12, noise=0.005, outliers=0.0, seed=0):
        self.fabric = build_fabric(cabling)
        self.late, self.slow_by, self.least = set(late), slow_by, least
        self.noise, self.outliers, self.random = noise, outliers, random.Random(seed)
        self.loss_by_doubling, self.step, self.uplink, self.slow_rail, self.evidence = 0.0, 1.0, None, None, None

    def rate(self, group, figures_before):
        if len(group.nodes) == 1:
            return 470.0
        rate = FULL if group.rail is None else FULL / 8
        if group.rail is None and len(group.nodes) > 2:
            rate *= 1 - self.loss_by_doubling * math.log2(len(group.nodes))
        if len(group.nodes) >= self.least:
            rate *= self.step * (1 - self.slow_by if self.late & set(group.nodes) else 1)
        units = {self.fabric.unit_of[name] for name in group.nodes}
        if self.uplink in units and len(units) > 1 and group.rail is None:
            rate *= 0.7
        if self.slow_rail is not None and group.rail in (self.slow_rail, None) and len(units) > 1:
            rate *= 0.83
        if self.random.random() < self.outliers:
            rate *= 1 - self.random.uniform(0.1, 0.4)
        return rate * (1 + self.noise * self.random.gauss(0, 1))

    def measure(self, scopes=("rail", "pair", "group")):
        evidence = Evidence(self.fabric, scopes=scopes)
        while (planned := next_round(evidence)) is not None:
            figures = tuple(GroupResult(group, self.rate(group, len(evidence.rounds))) for group in planned.groups)
            evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, figures)))
        self.evidence = evidence
        return blame(evidence)


def limit(nodes, faults):
    return 2 * math.ceil(math.log2(nodes)) + 6 + 4 * faults


@pytest.mark.parametrize(
    ("nodes", "unit"), [(16, 4), (16, 8), (16, 16), (24, 8), (32, 16), (64, 4), (64, 16), (64, 32)]
)
@pytest.mark.parametrize("slow_by", [0.07, *(pytest.param(slow_by, marks=pytest.mark.long) for slow_by in (0.1, 0.3))])
def test_straggler_is_named_whatever_the_size_of_units(nodes, unit, slow_by):
    culprit = f"gpu{nodes * 5 // 8:03}"
    cluster = Cluster(Cabling(nodes=nodes, unit=unit, leaves=8), late={culprit}, slow_by=slow_by, seed=nodes + unit)
    said = cluster.measure()
    assert [(blamed.part, blamed.kind, blamed.alternatives) for blamed in said.blamed] == [(culprit, "slow", ())]
    assert said.blamed[0].probability <= 1e-3
    assert said.blamed[0].found_gb_per_s == pytest.approx((1 - slow_by) * said.blamed[0].expected_gb_per_s, rel=0.02)
    assert len(cluster.evidence.rounds) <= limit(nodes, 1)


@pytest.mark.parametrize("late", [("gpu001", "gpu002"), ("gpu001", "gpu017", "gpu040")])
@pytest.mark.parametrize("unit", [4, 16, 32])
def test_several_stragglers_are_all_named(late, unit):
    cluster = Cluster(Cabling(nodes=64, unit=unit, leaves=8), late=late, slow_by=0.15)
    assert {blamed.part for blamed in cluster.measure().blamed} == set(late)
    assert len(cluster.evidence.rounds) <= limit(64, len(late))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_three_stragglers_among_few_nodes_are_named_or_unclear_and_no_other_node_is_blamed(seed):
    late = {"gpu003", "gpu009", "gpu014"}
    cluster = Cluster(Cabling(nodes=64, unit=4, leaves=8), late=late, slow_by=0.15, seed=seed)
    said = cluster.measure()
    named = {blamed.part for blamed in said.blamed}
    unclear = {name for name in late if any(name in sentence for sentence in said.unclear)}
    assert named <= late
    assert len(named | unclear) >= 2
    assert len(cluster.evidence.rounds) <= limit(64, 3)


@pytest.mark.parametrize("unit", [4, 16])
@pytest.mark.parametrize("noise", [0.003, 0.01, 0.03])
def test_healthy_groups_accuse_nobody(unit, noise):
    for seed in range(20):
        cluster = Cluster(Cabling(nodes=64, unit=unit, leaves=8), noise=noise, outliers=0.05, seed=seed)
        assert cluster.measure(("group",)).blamed == ()


def test_large_groups_may_be_slower_by_their_size_and_by_another_algorithm():
    for nodes, step in itertools.product((16, 64), (1.0, 0.9)):
        cluster = Cluster(Cabling(nodes=nodes, unit=4, leaves=8), noise=0.003)
        cluster.loss_by_doubling, cluster.step = 0.012, step
        said = cluster.measure()
        assert (said.blamed, said.suspects) == ((), ())
        assert not any("slow" in sentence for sentence in said.unclear)
        if nodes == 16 and step == 1:
            scopes = [measured.round.scope for measured in cluster.evidence.rounds]
            assert scopes.count("group") == 2  # each unit, and all nodes


@pytest.mark.parametrize("unit", [4, 16])
def test_slow_uplinks_of_a_unit_accuse_none_of_its_nodes(unit):
    cluster = Cluster(Cabling(nodes=64, unit=unit, leaves=8), noise=0.003)
    cluster.uplink = "U2"
    assert cluster.measure(("group",)).blamed == ()


def test_nodes_that_are_all_behind_a_slow_uplink_still_run_together_inside_their_units():
    cluster = Cluster(Cabling(nodes=16, unit=8, leaves=8))
    cluster.slow_rail = 3
    said = cluster.measure()
    (uplink,) = said.blamed
    assert {"unit:U0/rail3", "unit:U1/rail3"} <= {uplink.part, *uplink.alternatives}
    (groups,) = [each.round.groups for each in cluster.evidence.rounds if each.round.scope == "group"]
    assert {group.nodes for group in groups} == set(cluster.fabric.units.values())
    (unclear,) = said.unclear
    assert str(unclear).startswith(f"{uplink.part}: each group of several units crosses it, so none was measured")


def test_straggler_of_very_large_groups_is_found_from_the_halves_of_all_nodes():
    cluster = Cluster(Cabling(nodes=64, unit=4, leaves=8), late={"gpu041"}, slow_by=0.4, least=28)
    assert [blamed.part for blamed in cluster.measure().blamed] == ["gpu041"]


def test_straggler_that_hangs_is_named_as_hanging():
    cluster = Cluster(Cabling(nodes=64, unit=16, leaves=8))
    evidence = Evidence(cluster.fabric, scopes=("group",))
    while (planned := next_round(evidence)) is not None:
        figures = tuple(
            GroupResult(group, None, "hang") if "gpu021" in group.nodes else GroupResult(group, FULL)
            for group in planned.groups
        )
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, figures)))
    assert [(blamed.part, blamed.kind, blamed.found_gb_per_s) for blamed in blame(evidence).blamed] == [
        ("gpu021", "hang", None)
    ]


@pytest.mark.parametrize(
    "sizes", [(4,) * 16, (16,) * 4, (32,) * 2, (8,) * 3, (16, 16, 5), (32, 3), (7, 9, 11, 30), (24,)]
)
def test_even_groups_hold_each_node_once_and_are_of_12_to_23_nodes(sizes):
    numbers = iter(range(1000))
    units = [tuple(f"h{next(numbers)}" for _ in range(size)) for size in sizes]
    groups = even_groups(units)
    assert sorted(name for group in groups for name in group) == sorted(name for unit in units for name in unit)
    assert all(12 <= len(group) <= 23 for group in groups)


@pytest.mark.parametrize(("count", "out"), [(4, 1), (8, 2), (12, 3), (13, 1), (14, 2), (16, 4), (23, 5)])
def test_as_many_nodes_are_left_out_as_leave_a_large_group(count, out):
    assert max_left_out(count) == out


def measured(*rates_by_group):
    groups = tuple(RankGroup(tuple(nodes)) for nodes, _ in rates_by_group)
    figures = tuple(GroupResult(g, rate) for g, (_, rate) in zip(groups, rates_by_group, strict=True))
    return Measured(Round("group", groups), figures)


FABRIC = build_fabric(Cabling(nodes=32, unit=8, leaves=8))
U0, U1, U2, U3 = FABRIC.units.values()


def test_groups_are_compared_with_those_that_share_uplinks_with_as_many_others():
    crossed = [*U0[:4], *U1[:4]], [*U0[4:], *U1[4:]]
    whole = [*U2, *U3]
    readings = GroupReadings(FABRIC, [measured((crossed[0], 180.0), (crossed[1], 200.0), (whole, 388.0))]).all
    assert {reading.level for reading in readings if reading.load == 2} == {200.0}
    assert not any(reading.load == 1 for reading in readings)  # nothing to compare it with


def test_two_groups_that_are_both_slow_are_compared_with_other_rounds():
    first = measured(([*U0, *U1], 388.0), ([*U2, *U3], 388.0))
    second = measured(([*U0, *U2], 200.0), ([*U1, *U3], 210.0))
    readings = GroupReadings(FABRIC, [first, second])
    assert [readings.is_low(reading) for reading in readings.all] == [False, False, True, True]


def test_groups_with_a_straggler_say_nothing_of_others():
    rounds = [measured(([*U0, *U1], 200.0), ([*U2, *U3], 388.0))]
    assert GroupReadings(FABRIC, rounds, frozenset({U0[0]})).all == ()


def test_nodes_with_the_same_history_are_dealt_evenly_and_each_node_once():
    rounds = (measured((U0, 388.0), (U1, 388.0), (U2, 300.0), (U3, 388.0)),)
    stragglers = Stragglers(FABRIC, rounds, 6, 1e-3)
    assert set(stragglers.open[0].near) == set(U2)
    for turn in range(6):
        groups = Deal(FABRIC, stragglers, turn).groups((U0, U1, U2, U3))
        assert sorted(len(set(U2) & set(group.nodes)) for group in groups) == [0, 0, 4, 4]
        assert sorted(name for group in groups for name in group.nodes) == sorted(FABRIC.nodes)
        assert {len(group.nodes) for group in groups} == {8}


def test_node_that_is_alone_in_its_unit_may_be_slow_because_of_its_uplinks():
    *others, lone = *U0, *U1, *U3, U2[0]
    rounds = []
    for seed in range(14):
        shuffled = random.Random(seed).sample(others, len(others))
        rounds.append(measured(([*shuffled[:12], lone], 300.0), (shuffled[12:], 388.0)))
    (open_,) = Stragglers(FABRIC, tuple(rounds), 9, 1e-3).open
    assert (open_.node, open_.rivals, open_.units) == (lone, (), ("U2",))
    mates = [measured(([*shuffled[:12], lone], 300.0), ([*shuffled[12:], *U2[1:]], 388.0))] * 4
    assert [sure.node for sure in Stragglers(FABRIC, (*rounds, *mates), 9, 1e-3).sure] == [lone]


def test_node_into_which_static_routes_collide_is_not_sure_to_be_slow_if_units_are_unknown():
    fabric = build_unmapped_fabric(Cabling(nodes=16, unit=4, leaves=1))
    names, rounds = tuple(fabric.nodes), []
    for turn in range(1, 5):
        pairs = [RankGroup((names[node], names[node ^ turn]), rail) for node in range(16) for rail in range(8)]
        unique = tuple(pair for pair in pairs if pair.nodes[0] < pair.nodes[1])
        figures = tuple(GroupResult(pair, 15.0 if number % 2 else 22.0) for number, pair in enumerate(unique))
        rounds.append(Measured(Round("rail", unique), figures))
    entered, others = names[12], [name for name in names[8:] if name != names[12]]
    for pair in itertools.islice(itertools.combinations(others, 2), 12):
        slow = measured(([entered, *(name for name in others if name not in pair)], 109.0))
        rounds.append(slow)
    rounds.append(measured((others, 165.0)))
    stragglers = Stragglers(fabric, tuple(rounds), 5, 1e-3)
    assert stragglers.sure == ()
    assert {suspicion.may_be_paths for suspicion in stragglers.open} == {True}
