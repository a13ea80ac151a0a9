"""What many nodes show alike is one finding on the fleet, and blames no part; what failed is never silent."""

import dataclasses
import random

import pytest

from gpuops.isolation import blame, next_round
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.common import common_causes
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.report.all_reduce.blame import tail
from gpuops.report.page import Page

pytestmark = pytest.mark.sampled

RAILS = Cabling(nodes=32, gpus=8, unit=16, leaves=8)
SCOPES = ("node", "rail", "pair", "group")


def healthy(group):
    """What H100 nodes with NDR reach."""
    if len(group.nodes) == 1:
        return 470.0 if len(group.gpus or range(8)) > 4 else 360.0
    return 48.5 if group.rail is not None else 388.0


def measured(fabric, figure, scopes=SCOPES, expected=None):
    """All rounds of a fabric whose groups reach ``figure``: GB/s, or (trouble, detail) or (trouble, detail, absent)."""
    evidence = Evidence(fabric, scopes=scopes)
    while (planned := next_round(evidence)) is not None:
        figures = tuple(
            GroupResult(group, value) if isinstance(value, float) else GroupResult(group, None, value[0], *value[2:],
            detail=value[1])
            for group, value in ((group, figure(group)) for group in planned.groups)
        )  # fmt: skip
        due = {group: expected(group) for group in planned.groups} if expected else {}
        rounds = (*evidence.rounds, Measured(planned, figures))
        evidence = dataclasses.replace(evidence, rounds=rounds, expected={**evidence.expected, **due})
    return blame(evidence), evidence


@pytest.mark.parametrize("nodes", [3, 4, 5, 16, 32])
@pytest.mark.parametrize("trouble", ["error", "socket", "wrong", "hang", "unreachable", "no-gpudirect"])
def test_a_trouble_between_all_nodes_is_the_fleets(nodes, trouble):
    fabric = build_fabric(Cabling(nodes=nodes, gpus=8, unit=max(1, nodes // 2), leaves=8))
    words = "NET/Plugin: no plugin found"
    result, evidence = measured(fabric, lambda g: (trouble, words) if len(g.nodes) > 1 else healthy(g))
    assert result.blamed == ()
    (cause,) = result.fleet
    assert (cause.kind, cause.where, cause.tested) == (trouble, "between nodes", nodes)
    assert len(cause.nodes) == nodes
    assert cause.evidence == (words,)
    assert len(evidence.rounds) <= 6  # more would show no more


@pytest.mark.parametrize(("unit", "seed"), [(4, 3), (8, 1), (8, 5), (16, 2)])
def test_half_of_the_nodes_slow_lists_no_healthy_node_and_accuses_no_leaf(unit, seed):
    fabric = build_fabric(Cabling(nodes=64, gpus=8, unit=unit, leaves=8, oversubscription=1.5))
    slow, unit_of = set(random.Random(seed).sample(list(fabric.nodes), 32)), fabric.unit_of

    def figure(group):
        crosses = len({unit_of[name] for name in group.nodes}) > 1
        kept = 0.7 if len(group.nodes) > 1 and slow & set(group.nodes) else 1.0
        return healthy(group) * min(kept, 0.66 if crosses else 1.0)

    result, evidence = measured(fabric, figure)
    assert result.blamed == ()
    (cause,) = result.fleet
    assert set(cause.nodes) <= slow
    fast = [len(set(names) - slow) for names in fabric.units.values()]  # one alone never shows that it is fast
    beside_fast_ones = [slow.intersection(n) for n, count in zip(fabric.units.values(), fast, strict=True) if count > 1]
    assert len(cause.nodes) >= 0.75 * len(set().union(*beside_fast_ones))
    assert set(cause.nodes) == slow or result.is_incomplete
    assert len(evidence.rounds) <= 2 * 6 + 6 + 4


@pytest.mark.parametrize("trouble", ["error", "wrong", "hang"])
def test_a_trouble_within_all_nodes_is_the_fleets(trouble):
    result, _ = measured(build_fabric(RAILS), lambda g: (trouble, "v2.18") if len(g.nodes) == 1 else healthy(g))
    assert [(c.kind, c.where, len(c.nodes)) for c in result.fleet] == [(trouble, "within nodes", 32)]
    assert result.blamed == ()


def test_an_error_of_two_nodes_is_not_healthy():
    fabric = build_fabric(Cabling(nodes=2, gpus=8, unit=2, leaves=8))
    result, _ = measured(fabric, lambda g: ("error", "ncclSystemError") if len(g.nodes) > 1 else healthy(g))
    assert result.blamed or result.unclear or result.fleet
    assert "ncclSystemError" in str(result)


@pytest.mark.parametrize("where", ["within nodes", "between nodes"])
def test_half_of_the_nodes_slow_accuses_no_leaf(where):
    fabric = build_fabric(RAILS)
    slow = set(list(fabric.nodes)[::2])

    def figure(group):
        is_here = (len(group.nodes) == 1) == (where == "within nodes")
        return healthy(group) * (0.7 if is_here and slow & set(group.nodes) else 1.0)

    result, _ = measured(fabric, figure)
    assert result.blamed == ()
    (cause,) = result.fleet
    assert (cause.kind, cause.where, cause.tested) == ("slow", where, 32)
    assert slow <= set(cause.nodes)
    assert cause.found_gb_per_s == pytest.approx(0.7 * cause.expected_gb_per_s, rel=0.02)


@pytest.mark.parametrize(("ratio", "low"), [(0.5, True), (0.8, True), (0.88, False), (1.0, False)])
def test_an_evenly_slow_fabric_is_found_if_there_is_an_expectation(ratio, low):
    result, _ = measured(build_fabric(RAILS), lambda g: healthy(g) * ratio, expected=lambda g: 0.85 * healthy(g))
    assert result.blamed == ()
    assert [(c.kind, c.where) for c in result.fleet] == (
        [("slow", "within nodes"), ("slow", "between nodes")] if low else []
    )


@pytest.mark.parametrize("trouble", ["error", "hang"])
def test_a_rank_that_dies_with_all_its_partners_is_named_with_its_own_words(trouble):
    def figure(group):
        uses = "gpu005" in group.nodes and group.rail in {None, 4} and len(group.nodes) > 1
        return (trouble, "gpu005: worker ended by signal 9") if uses else healthy(group)

    result, _ = measured(build_fabric(RAILS), figure)
    (blamed,) = result.blamed
    assert (blamed.part, blamed.alternatives) == ("gpu005:mlx5_4", ())  # within the node all of its GPUs work
    assert blamed.kind == trouble
    assert "gpu005: worker ended by signal 9" in blamed.evidence
    assert blamed.probability <= 1e-3


def test_a_gpu_whose_rank_dies_within_its_node_is_named():
    def figure(group):
        if group.nodes == ("gpu005",) and 4 in (group.gpus or range(8)):
            return ("error", "gpu005: rank 4 ended by signal 9", ("gpu005:gpu4",))
        return healthy(group)

    result, _ = measured(build_fabric(RAILS), figure, scopes=("node",))
    (blamed,) = result.blamed
    assert (blamed.part, blamed.kind) == ("gpu005:gpu4", "error")
    assert "gpu005: rank 4 ended by signal 9" in blamed.evidence


def test_a_failure_that_does_not_return_is_unclear_and_keeps_its_words():
    failed = []

    def figure(group):
        if "gpu003" in group.nodes and group.rail == 2 and not failed:
            failed.append(group)
            return ("error", "transport retry counter exceeded")
        return healthy(group)

    result, _ = measured(build_fabric(RAILS), figure)
    assert result.blamed == ()
    assert any("transport retry counter exceeded" in sentence for sentence in result.unclear)


def test_one_leaf_of_one_unit_is_a_part_and_not_the_fleet():
    fabric = build_fabric(Cabling(nodes=32, gpus=8, unit=16, leaves=1))
    behind = set(fabric.units["U0"])

    def figure(group):
        return healthy(group) * (0.6 if len(group.nodes) > 1 and behind & set(group.nodes) else 1.0)

    result, _ = measured(fabric, figure, scopes=("node", "rail"))
    assert result.fleet == ()
    assert [part.part for part in result.blamed] == ["leaf:L0"]


def test_what_a_common_cause_explains_is_taken_out_and_the_rest_is_judged():
    def figure(group):
        if len(group.nodes) == 1:
            return ("wrong", "NCCL 2.18.1")
        return healthy(group) * (0.6 if "gpu007" in group.nodes and group.rail in {None, 3} else 1.0)

    result, evidence = measured(build_fabric(RAILS), figure, scopes=("node", "rail"))
    assert [cause.kind for cause in result.fleet] == ["wrong"]
    assert [part.part for part in result.blamed] == ["gpu007:mlx5_3"]
    causes, rest = common_causes(evidence)
    assert len(rest.rounds) == len(evidence.rounds)
    assert not any(f.trouble for m in rest.rounds for f in m.figures)
    assert causes == result.fleet


@pytest.mark.parametrize("trouble", ["unreachable", "socket", "no-gpudirect"])
def test_a_node_that_cannot_be_measured_by_itself_is_told_with_its_words_and_no_part_of_it_is_blamed(trouble):
    def figure(group):
        return (trouble, "connect to gpu005 failed: No route to host") if "gpu005" in group.nodes else healthy(group)

    result, _ = measured(build_fabric(RAILS), figure)
    assert {blamed.part for blamed in result.blamed} == {"gpu005"}
    assert {blamed.kind for blamed in result.blamed} == {trouble}
    result, _ = measured(build_fabric(RAILS), figure, scopes=("node",))
    assert result.blamed == ()
    assert any("gpu005" in text and "No route to host" in text for text in result.unclear)


def test_many_contended_pairs_are_a_few_lines():
    fabric = build_fabric(Cabling(nodes=128, gpus=8, unit=16, leaves=8))
    seen = set()

    def figure(group):
        crosses = len({fabric.unit_of[node] for node in group.nodes}) > 1
        again = any((node, group.rail) in seen for node in group.nodes)
        if crosses and not again and int(group.nodes[0][3:]) % 3 == 0:
            seen.update((node, group.rail) for node in group.nodes)
            return healthy(group) * 0.5
        return healthy(group)

    result, _ = measured(fabric, figure, scopes=("rail",))
    assert result.blamed == ()
    assert 1 <= len(result.contention) <= 8 * 7 / 2
    assert all("between U" in line for line in result.contention)
    assert sum(len(line.parts) for line in result.contention) == len(seen) / 2
    lines = list(tail(result, Page(80)))
    assert len(lines) <= 14
    assert any("more pairs elsewhere" in line for line in lines)


def test_nodes_that_were_not_measured_again_on_a_warm_fabric_share_no_cause():
    fabric = build_fabric(Cabling(nodes=16, gpus=8, unit=8, leaves=8))
    names, warm = tuple(fabric.nodes), [0.88, 0.92, 0.96, 0.99]
    rounds = [names, names, names, names[:9]]
    measured = tuple(
        Measured(
            Round("node", tuple(RankGroup((name,)) for name in some)),
            tuple(GroupResult(RankGroup((name,)), 470.0 * level) for name in some),
        )
        for some, level in zip(rounds, warm, strict=True)
    )
    assert common_causes(Evidence(fabric, measured))[0] == ()


def test_nodes_that_are_as_slow_as_those_behind_a_leaf_share_its_cause():
    fabric = build_fabric(Cabling(nodes=16, gpus=8, unit=8, leaves=1))
    slow = {*fabric.units["U0"], "gpu008", "gpu015"}
    result, _ = measured(fabric, lambda g: healthy(g) * (0.71 if len(g.nodes) > 1 and slow & {*g.nodes} else 1.0))
    assert result.blamed == ()
    assert [(cause.kind, cause.where) for cause in result.fleet] == [("slow", "between nodes")]
