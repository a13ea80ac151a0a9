"""Fabrics on which several causes hide behind one another; the figures are written down, none is drawn by gpuops."""

import dataclasses
import zlib

import pytest

from gpuops.isolation import blame, next_round
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.rounds import GroupResult

pytestmark = pytest.mark.sampled

RAILS = Cabling(nodes=16, gpus=8, unit=4, leaves=8)
LINE = 21.9


def noise(*key):
    """Return a factor within 0.5 % of 1 that is the same for the same key."""
    return 1 + (zlib.crc32(repr(key).encode()) % 1001 - 500) / 1e5


def judged(share):
    """All rounds of a fabric on which a group keeps ``share`` of what the line allows, and what is blamed."""
    evidence = Evidence(build_fabric(RAILS))
    while (planned := next_round(evidence)) is not None:
        figures = []
        for group in planned.groups:
            rate = 430.0 if len(group.nodes) == 1 else LINE if group.rail is not None else 8 * LINE
            kept = share(group, evidence.fabric) * noise(group.nodes, group.rail, len(evidence.rounds))
            figures.append(GroupResult(group, rate * kept))
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, tuple(figures))))
    return blame(evidence), evidence


def leaves_unit(group, fabric):
    return len({fabric.unit_of[name] for name in group.nodes}) > 1


def narrow_spine(salt):
    """Links of the spine that carry two thirds of a NIC: a transfer is limited if its flows are hashed onto one."""

    def share(group, fabric):
        if group.rail is None or not leaves_unit(group, fabric):
            return 1.0
        return 2 / 3 if zlib.crc32(repr((salt, sorted(group.nodes), group.rail)).encode()) % 10 < 7 else 1.0

    return share


@pytest.mark.parametrize("salt", range(12))
def test_a_spine_whose_links_are_slower_than_a_nic_accuses_no_uplink(salt):
    result, _ = judged(narrow_spine(salt))
    assert result.blamed == ()
    assert result.suspects == ()


@pytest.mark.parametrize("slow", ["one unit on all rails", "one rail of all units"])
def test_uplinks_of_one_unit_are_blamed_and_those_of_one_rail_are_one_finding(slow):
    def share(group, fabric):
        if len(group.nodes) == 1 or not leaves_unit(group, fabric):
            return 1.0
        units = {fabric.unit_of[name] for name in group.nodes}
        return 0.7 if ("U2" in units if slow == "one unit on all rails" else group.rail in {None, 3}) else 1.0

    result, _ = judged(share)
    blamed = {each.part for each in result.blamed}
    if slow == "one unit on all rails":
        assert (blamed, result.fleet) == ({f"unit:U2/rail{rail}" for rail in range(8)}, ())
    else:
        assert blamed == set()
        assert [str(cause) for cause in result.fleet] == [
            "rail 3, between units, 16 of 16 nodes: slow, 15.3 of 21.9 GB/s"
        ]


def test_two_slow_nics_of_a_leaf_with_four_ports_are_named_and_not_the_leaf():
    bad = {"gpu013": 0.86, "gpu015": 0.66}

    def share(group, _fabric):
        return min([bad.get(name, 1.0) for name in group.nodes]) if group.rail == 1 else 1.0

    result, evidence = judged(share)
    assert {each.part for each in result.blamed} == {"gpu013:mlx5_1", "gpu015:mlx5_1"}
    assert len(evidence.rounds) <= 14


def test_a_node_all_of_whose_nics_are_equally_slow_is_one_finding():
    def share(group, _fabric):
        return 0.8 if len(group.nodes) > 1 and "gpu006" in group.nodes else 1.0

    result, _ = judged(share)
    assert [(each.part, each.kind) for each in result.blamed] == [("gpu006", "slow")]


def test_the_partner_of_a_nic_that_is_a_little_slow_is_not_blamed_for_it():
    """Measured again and again with a slow NIC, and healthy with all others."""

    def share(group, _fabric):
        return 0.952 if group.rail == 1 and "gpu015" in group.nodes else 1.0

    result, _ = judged(share)
    assert {each.part for each in result.blamed} <= {"gpu015:mlx5_1"}
    assert "gpu015" in str(result)


def test_uplinks_of_several_units_and_rails_that_are_equally_slow_are_not_blamed():
    slow = {("U0", 1), ("U1", 0), ("U1", 1)}

    def share(group, fabric):
        if group.rail is None or not leaves_unit(group, fabric):
            return 1.0
        return 0.67 if {(fabric.unit_of[name], group.rail) for name in group.nodes} & slow else 1.0

    result, _ = judged(share)
    assert result.blamed == ()
    assert result.contention or result.unclear
