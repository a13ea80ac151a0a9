"""A rail that is slow for all nodes is one finding on the fleet; parts of it are still found."""

import zlib

import pytest
from tests.unit.isolation.test_whole_nodes import judged, units, unmapped

from gpuops.isolation.remedies import fix_in_common

pytestmark = pytest.mark.sampled


def leaves_unit(group, fabric):
    return len({fabric.unit_of.get(name) for name in group.nodes}) > 1


@pytest.mark.parametrize("count", [3, 6])
@pytest.mark.parametrize("kept", [0.74, 0.92])
def test_the_spine_of_one_rail_accuses_no_uplink(count, kept):
    fabric = units(8 * count, 8)
    result = judged(fabric, lambda group: kept if group.rail == 3 and leaves_unit(group, fabric) else 1.0)
    assert (result.blamed, result.suspects, result.unclear) == ((), (), ())
    (cause,) = result.fleet
    assert (cause.kind, cause.where, cause.rail) == ("slow", "between units", 3)
    assert cause.found_gb_per_s == pytest.approx(kept * cause.expected_gb_per_s, rel=0.01)
    assert "spine switches of rail 3" in fix_in_common(cause)


@pytest.mark.parametrize("fabric", [units(16, 8), units(32, 8), unmapped(16)], ids=["2 units", "4 units", "unmapped"])
@pytest.mark.parametrize("kept", [0.6, 0.9])
def test_a_rail_that_is_slow_for_all_nodes_accuses_no_leaf(fabric, kept):
    result = judged(fabric, lambda group: kept if group.rail == 0 else 1.0)
    assert (result.blamed, result.suspects, result.unclear) == ((), (), ())
    (cause,) = result.fleet
    assert (cause.kind, cause.where, cause.rail, len(cause.nodes)) == ("slow", "between nodes", 0, len(fabric.nodes))


def test_a_rail_that_all_nodes_find_a_little_slower_is_no_finding():
    result = judged(units(32, 8), lambda group: 0.96 if group.rail == 0 else 1.0)
    assert (result.blamed, result.suspects, result.unclear, result.fleet) == ((), (), (), ())


@pytest.mark.parametrize("part", ["gpu013:mlx5_0", "leaf:L16"])
def test_a_fault_on_a_slow_rail_is_still_named(part):
    fabric = units(32, 8)

    def share(group):
        if group.rail != 0:
            return 1.0
        is_bad = any(fabric.part(name, 0) == part or f"leaf:{fabric.leaf_of[name, 0]}" == part for name in group.nodes)
        return 0.85 * (0.7 if is_bad else 1.0)

    result = judged(fabric, share)
    assert [each.part for each in result.blamed] == [part]
    assert [cause.rail for cause in result.fleet] == [0]


def test_a_rail_with_traffic_of_others_is_unclear_and_accuses_nothing():
    turn = iter(range(10**6))

    def share(group):
        return 0.6 + (next(turn) * 0.618 % 1) * 0.35 if group.rail == 0 else 1.0

    result = judged(units(32, 8), share)
    assert (result.blamed, result.fleet) == ((), ())
    (sentence,) = result.unclear
    assert sentence.startswith("rail 0, between nodes, 32 of 32 nodes: slow at times")


def test_leaves_of_one_rail_that_are_slow_to_different_degrees_are_faults_of_their_own():
    fabric = units(16, 8)
    kept = {"L3": 0.72, "L11": 0.85}

    def share(group):
        return min(kept.get(fabric.leaf_of[name, group.rail], 1.0) for name in group.nodes) if group.rail == 3 else 1.0

    result = judged(fabric, share)
    assert {each.part for each in result.blamed} == {"leaf:L3", "leaf:L11"}
    assert result.fleet == ()


@pytest.mark.parametrize(
    ("nodes", "unit", "seed"), [(16, 4, 0), (16, 4, 3), pytest.param(24, 6, 2, marks=pytest.mark.long)]
)
def test_pairs_whose_path_is_always_slow_make_no_nic_flapping(nodes, unit, seed):
    def share(group):
        key = repr((seed, sorted(group.nodes), group.rail)).encode()
        return 0.85 if group.rail is not None and zlib.crc32(key) % 100 < 15 else 1.0

    assert judged(units(nodes, unit), share).blamed == ()


def test_a_spine_of_one_rail_that_carries_other_traffic_at_times_accuses_no_uplink():
    fabric = units(32, 8)
    turn = iter(range(10**6))

    def share(group):
        if group.rail != 3 or not leaves_unit(group, fabric):
            return 1.0
        return 0.5 if next(turn) // 3 % 2 else 1.0

    result = judged(fabric, share)
    assert (result.blamed, result.suspects) == ((), ())
    assert result.contention or result.unclear


TROUBLES = ["error", "hang", "wrong", "socket", "unreachable", "no-gpudirect"]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_rail_that_fails_for_all_nodes_is_one_finding(trouble):
    fabric = units(24, 8)
    result = judged(fabric, lambda g: (trouble, "NET/IB: x") if g.rail in {3, None} and len(g.nodes) > 1 else 1.0)
    assert (result.blamed, result.suspects, result.unclear) == ((), (), ())
    (cause,) = result.fleet
    assert (cause.kind, cause.where, cause.rail, len(cause.nodes)) == (trouble, "between nodes", 3, 24)
    assert cause.evidence == ("NET/IB: x",)


@pytest.mark.parametrize("rails", [{3, None}, {*range(8), None}], ids=["one rail", "all rails"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_spine_that_fails_is_one_finding(trouble, rails):
    fabric = units(32, 8)
    result = judged(fabric, lambda g: (trouble, "x") if g.rail in rails and leaves_unit(g, fabric) else 1.0)
    assert (result.blamed, result.suspects, result.unclear) == ((), (), ())
    (cause,) = result.fleet
    assert (cause.kind, cause.where, cause.rail) == (trouble, "between units", 3 if len(rails) == 2 else None)


@pytest.mark.parametrize("kept", [0.5, 0.85])
def test_a_slow_path_between_two_of_four_units_is_told(kept):
    fabric = units(32, 8)

    def share(group):
        return kept if {"U0", "U1"} <= {fabric.unit_of[name] for name in group.nodes} else 1.0

    result = judged(fabric, share)
    assert (result.blamed, result.fleet) == ((), ())
    assert any("between U0 and U1 are slow" in sentence for sentence in result.unclear)


@pytest.mark.parametrize("kept", [0.02, 0.4])
def test_rails_that_no_node_finds_near_the_line_rate_are_told(kept):
    result = judged(units(24, 8), lambda group: kept if len(group.nodes) > 1 else 1.0)
    assert result.blamed == ()
    assert any("of the line rate that the ports state" in sentence for sentence in result.unclear)


def test_rails_whose_routes_collide_are_no_finding():
    """Static routes: on rail 6 those of all pairs meet, on the others those of one pair in three."""
    fabric = units(16, 4)

    def share(group):
        if group.rail is None or not leaves_unit(group, fabric):
            return 1.0
        return 0.75 if group.rail == 6 or zlib.crc32(repr((sorted(group.nodes), group.rail)).encode()) % 3 == 0 else 1.0

    assert judged(fabric, share).fleet == ()
