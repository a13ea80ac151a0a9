"""Nodes that are a little slow in all that they do: they explain their transfers, and nothing beside them is blamed."""

import zlib

import pytest
from tests.unit.isolation.test_whole_nodes import judged, units

pytestmark = pytest.mark.sampled

KEPT = {"gpu002": 0.937, "gpu003": 0.949}


def noisy(group, seed, width):
    """Between 1 - ``width`` and 1 + ``width``, as if every measurement of these nodes differed."""
    noisy.calls += 1
    return 1 + width * (zlib.crc32(repr((group, seed, noisy.calls)).encode()) % 2001 - 1000) / 1000


noisy.calls = 0


@pytest.mark.parametrize("seed", range(2))
def test_two_slow_nodes_of_four_blame_no_leaf_that_they_share(seed):
    noisy.calls = 0

    def share(group):
        kept = min(KEPT.get(name, 1.0) for name in group.nodes)
        return kept * noisy(group, seed, 0.002 if len(group.nodes) == 1 else 0.02)

    result = judged(units(16, 4), share)
    assert {each.part for each in result.blamed} <= set(KEPT)
    assert not result.suspects
    assert not result.unclear


@pytest.mark.parametrize("seed", range(2))
def test_a_leaf_beside_them_that_is_as_slow_is_blamed_for_its_other_ports(seed):
    noisy.calls = 0

    def share(group):
        kept = min(KEPT.get(name, 1.0) for name in group.nodes)
        on_leaf = group.rail == 5 and any(name in ("gpu000", "gpu001", "gpu002", "gpu003") for name in group.nodes)
        return min(kept, 0.94 if on_leaf else 1.0) * noisy(group, seed, 0.002 if len(group.nodes) == 1 else 0.01)

    result = judged(units(16, 4), share)
    assert "leaf:L5" in {each.part for each in result.blamed}
