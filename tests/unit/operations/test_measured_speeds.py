"""What an all-reduce measured counts for a placement."""

from types import SimpleNamespace

from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.operations.place import _measured
from gpuops.placement import NodeShape


def request(*figures):
    return SimpleNamespace(
        measured=SimpleNamespace(evidence=SimpleNamespace(rounds=[SimpleNamespace(figures=figures)]))
    )


def result(nodes, gb_per_s, rail=0):
    return GroupResult(RankGroup(nodes, rail), gb_per_s)


def test_a_tier_is_as_fast_as_the_median_of_its_rails():
    shapes = [NodeShape(name, name, (), (leaf,), None, name) for name, leaf in zip("abc", "LLM", strict=True)]
    figures = (
        result(("a", "b"), 44.0), result(("a", "b"), 46.0, rail=1), result(("a", "b"), 300.0, rail=None),
        result(("b", "c"), 20.0), result(("a", "c"), None), result(("a", "gone"), 1.0),
    )  # fmt: skip
    assert _measured(request(*figures), shapes) == {"rack": 45.0, "spine": 20.0}
    assert _measured(SimpleNamespace(measured=None), shapes) == {}
