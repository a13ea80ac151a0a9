"""Uplinks on fabrics whose transfers between units disturb one another; the figures are written down here."""

import dataclasses
import random
import zlib
from collections import Counter

import pytest
from tests.unit.isolation.test_whole_nodes import units

from gpuops.isolation import blame, next_round
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.links import is_crowded
from gpuops.isolation.rounds import GroupResult, RankGroup, Round

LINE = 22.0


def judged(fabric, share, noise=0.004, links=None, capacity=1.0, flows=1):
    """All rounds of a fabric on which ``share(group, crossed, round_index)`` of the line is left to a group.

    ``crossed`` are the uplinks of a group, as unit and rail. Each of them has ``links`` that carry ``capacity`` lines,
    onto which the ``flows`` of each transfer are hashed; None: nothing collides.
    """
    evidence = Evidence(fabric)
    rng = random.Random(7)
    while (planned := next_round(evidence)) is not None:
        number = len(evidence.rounds)
        paths = [
            [(u, hashed((u, group, number, flow)) % links) for u in uplinks(group, fabric) for flow in range(flows)]
            if links
            else []
            for group in planned.groups
        ]
        loads = Counter(path for own in paths for path in own)
        figures = []
        for group, own in zip(planned.groups, paths, strict=True):
            rate = 430.0 if len(group.nodes) == 1 else LINE * (1 if group.rail is not None else 8)
            left = min([1.0, *(flows * capacity / max(flows, loads[path]) for path in own)])
            kept = left * share(group, uplinks(group, fabric), number) if len(group.nodes) > 1 else 1.0
            figures.append(GroupResult(group, rate * kept * (1 + noise * max(-3.0, min(3.0, rng.gauss(0, 1))))))
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, tuple(figures))))
    return blame(evidence)


def uplinks(group, fabric):
    of = {fabric.unit_of[name] for name in group.nodes}
    rails = fabric.rails if group.rail is None else (group.rail,)
    return sorted({(unit, rail) for unit in of for rail in rails}) if len(of) > 1 else []


def hashed(key):
    return zlib.crc32(repr(key).encode())


@pytest.mark.parametrize(
    ("nodes", "unit", "links", "capacity"), [(16, 8, 2, 2.7), (16, 8, 8, 1.0), (32, 8, 2, 2.7), (64, 16, 16, 1.0)]
)
@pytest.mark.parametrize("kept", [0.83, 0.92])
def test_a_slow_uplink_is_named_where_transfers_between_units_collide(nodes, unit, links, capacity, kept):
    def share(group, crossed, round_index):
        return kept if ("U1", 3) in crossed else 1.0

    (blamed,) = judged(units(nodes, unit), share, links=links, capacity=capacity).blamed
    of_two = {"unit:U0/rail3", "unit:U1/rail3", "spine"}
    assert {blamed.part, *blamed.alternatives} == ({"unit:U1/rail3"} if nodes > 2 * unit else of_two)


@pytest.mark.parametrize("nodes", [16, 32])
@pytest.mark.parametrize("seed", range(4))
def test_a_spine_that_is_slower_than_a_nic_on_every_path_accuses_no_uplink(nodes, seed):
    def share(group, crossed, round_index):
        bad = {("gpu003", 0): 0.5, ("gpu005", 2): 0.55}
        own = [bad.get((name, group.rail), 1.0) for name in group.nodes]
        return min(own) * (1 - hashed((seed, *crossed)) % 9 / 900 if crossed else 1.0)

    blamed = {each.part for each in judged(units(nodes, 8), share, links=3, capacity=0.89, flows=8).blamed}
    assert blamed <= {"gpu003:mlx5_0", "gpu005:mlx5_2"}


@pytest.mark.parametrize("links", [None, 4])
def test_a_slow_path_between_two_units_accuses_no_uplink_of_either(links):
    def share(group, crossed, round_index):
        return 0.945 if {("U1", 1), ("U3", 1)} <= set(crossed) else 1.0

    assert judged(units(16, 4), share, links=links).blamed == ()


def test_a_link_is_crowded_if_it_carries_more_transfers_than_most():
    fabric = units(nodes=32, unit=4)
    pairs = [("U0", "U1", 0), ("U2", "U3", 0), ("U4", "U5", 0), ("U6", "U7", 0), ("U0", "U7", 1)]
    groups = [RankGroup((fabric.units[one][turn], fabric.units[other][turn]), 0) for one, other, turn in pairs]
    inside = RankGroup(fabric.units["U0"][2:4], 0)
    planned = Round("rail", (*groups, inside))
    measured = Measured(planned, tuple(GroupResult(group, LINE) for group in planned.groups))
    assert [is_crowded(group, measured, fabric) for group in planned.groups] == [True, False, False, True, True, False]


@pytest.mark.parametrize(("last", "is_path"), [(4, False), (99, True)])
def test_a_path_that_was_slow_in_one_round_only_is_contention(last, is_path):
    fabric, pair = units(nodes=64, unit=8), {"U1", "U2"}

    def share(_, crossed, number):
        return 0.7 if {unit for unit, _ in crossed} == pair and number <= last else 1.0

    said = judged(fabric, share)
    assert said.blamed == ()
    assert any("between U1 and U2" in sentence for sentence in (*said.contention, *said.unclear))
    assert any("look at what joins these two" in sentence for sentence in said.unclear) == is_path


@pytest.mark.parametrize("turn", range(4))
def test_an_uplink_that_is_slow_in_some_rounds_is_named_and_the_other_ends_are_not(turn):
    def share(group, crossed, round_index):
        is_slow = hashed((turn, round_index)) % 2
        return 0.55 if is_slow and ("U2", 1) in crossed and group.rail is not None else 1.0

    result = judged(units(16, 4), share, 0.001)
    assert [(each.part, each.kind) for each in result.blamed] == [("unit:U2/rail1", "flapping")]


@pytest.mark.parametrize("kept", [0.7, 0.82])
def test_a_slow_leaf_before_a_narrow_spine_is_named_and_its_uplink_is_not(kept):
    fabric = units(16, 4)
    leaf = fabric.leaf_of["gpu004", 2]

    def share(group, crossed, round_index):
        is_behind = any(fabric.leaf_of[name, group.rail] == leaf for name in group.nodes if group.rail is not None)
        return kept if is_behind or (group.rail is None and "gpu004" in group.nodes) else 1.0

    result = judged(fabric, share, links=2, capacity=0.67)
    assert [each.part for each in result.blamed] == [f"leaf:{leaf}"]
