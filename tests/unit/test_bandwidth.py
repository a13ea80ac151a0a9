import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuops.bandwidth import (
    GIB,
    Network,
    between_nodes,
    bus_factor,
    learn,
    min_payload_bytes,
    on_rail,
    within_node,
)
from gpuops.profile import Expected, Profile, load

H100, H200, B200, A100 = (load(name) for name in ("hgx-h100", "hgx-h200", "hgx-b200", "dgx-a100"))
SWITCHED = [H100, H200, B200, A100]
EACH_SWITCHED = pytest.mark.parametrize("profile", SWITCHED, ids=lambda p: p.name)


def network(nodes, ranks=None, nics=8, rate=50.0, grade="datasheet"):
    return Network(nodes, nodes * 8 if ranks is None else ranks, nics, rate, "a datasheet", grade)


def invented(**families):
    values = {
        f"allreduce.{family}.{count}": Expected(curve, "a test bench", "measured-here")
        for family, counts in families.items()
        for count, curve in counts.items()
    }
    return Profile("invented", values)


@pytest.mark.parametrize(
    ("operation", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("send_recv", 1.0)],
)
def test_bus_factor_is_that_of_nccl_tests(operation, factor):
    assert bus_factor(operation, 8) == factor


def cap(expected):
    """The network cap before its efficiency."""
    return expected.terms[-1].gb_per_s / expected.terms[-1].efficiency


@pytest.mark.parametrize(
    ("profile", "nodes", "line", "gib", "measured"),
    [
        (H100, 8, 394, 1, 365.90),  # coreweave/nccl-tests, README.md
        (H100, 8, 394, 2, 380.73),
        (H100, 8, 394, 4, 383.23),
        (H100, 8, 394, 8, 386.56),
        (B200, 4, 387, 1, 361.99),  # stas00/ml-engineering, network/README.md
        (B200, 4, 387, 2, 372.42),
        (B200, 4, 387, 4, 377.34),
        (B200, 4, 387, 8, 380.39),
        (B200, 4, 387, 16, 381.80),
    ],
)
def test_published_runs_between_nodes_are_what_is_expected(profile, nodes, line, gib, measured):
    tree = between_nodes(profile, network(nodes), gib * GIB, algorithms=["nvls"])
    assert cap(tree) == pytest.approx(line, abs=0.6)
    best = between_nodes(profile, network(nodes), gib * GIB)
    assert best.limit == "network"
    assert best.gb_per_s == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize(
    ("profile", "gpus", "nvls", "gib", "measured"),
    [
        (H100, 8, True, 8, 478.9),
        (H100, 8, True, 1, 466.4),
        (H100, 8, False, 4, 365),
        (H100, 4, True, 4, 365),
        (H100, 6, True, 4, 440),
        (H200, 8, True, 8, 475.2),
        (H200, 8, False, 16, 367.2),
        (H200, 4, True, 8, 363.3),
        (H200, 5, True, 8, 414.2),
        (B200, 8, True, 8, 838),
        (B200, 5, True, 8, 673.8),  # NCCL takes NVLS from 6 GPUs on
        (B200, 6, True, 8, 778.2),
        (B200, 8, False, 8, 682.2),
        (A100, 8, True, 1, 228.1),
        (A100, 8, False, 8, 231.6),
    ],
)
def test_published_runs_within_a_node_are_what_is_expected(profile, gpus, nvls, gib, measured):
    expected = within_node(profile, gpus, gib * GIB, nvls=nvls)
    assert expected.gb_per_s == pytest.approx(measured, rel=0.001)
    assert (expected.limit, len(expected.terms)) == ("NVLink", 1)


def test_two_full_nodes_are_bound_by_nvlink_and_so_cannot_see_a_nic():
    pair = between_nodes(H100, network(2), 8 * GIB)
    assert (pair.limit, pair.algorithm) == ("NVLink", "nvls")
    assert pair.gb_per_s == pytest.approx(478.9, rel=0.001)
    assert cap(pair) == pytest.approx(2 * 400 * 15 / 16)
    one_nic_at_half = between_nodes(H100, network(2, rate=47.0), 8 * GIB)
    assert one_nic_at_half.gb_per_s == pair.gb_per_s


def test_a_rail_is_one_nic_whatever_the_node_has():
    rail = on_rail(network(2, ranks=2))
    assert rail.gb_per_s == pytest.approx(48.0)
    assert (rail.limit, rail.algorithm, rail.terms[0].sum) == ("network", "rail", "50 GB/s · e 0.96")


def test_the_sum_can_be_read():
    best = between_nodes(H100, network(8), 8 * GIB)
    assert [term.sum for term in best.terms] == ["8 GPUs with NVLS at 8 GiB", "8 · 50 GB/s · 63/64 · e 0.98"]
    pair = between_nodes(H100, network(2), 8 * GIB, algorithms=["tree"])
    assert [term.sum for term in pair.terms] == [
        "8 GPUs in a ring at 8 GiB · 0.92",
        "8 channels · 41.4 GB/s",
        "8 · 50 GB/s · 2 · 15/16 · e 0.98",
    ]


def test_the_network_counts_twice_only_where_the_switch_reduces():
    assert between_nodes(H100, network(8), 8 * GIB, algorithms=["sharp"]) is None
    with_sharp = H100.expecting({"allreduce.sharp": True}, "prod.yml:3:1")
    expected = between_nodes(with_sharp, network(8), 8 * GIB)
    assert (expected.algorithm, expected.limit) == ("sharp", "NVLink")
    assert cap(expected) == pytest.approx(2 * 400 * 63 / 64)


def test_a_tree_between_two_nodes_is_no_faster_than_its_channels():
    hdr = between_nodes(A100, network(2, nics=4, rate=25.0), 8 * GIB)
    assert (hdr.algorithm, hdr.gb_per_s) == ("ring", pytest.approx(96))
    tree = between_nodes(A100, network(2, nics=4, rate=25.0), 8 * GIB, algorithms=["tree"])
    assert (tree.limit, tree.gb_per_s) == ("channels", pytest.approx(4 * 23.6))
    edr = between_nodes(A100, network(2, rate=12.5), 8 * GIB)
    assert (edr.algorithm, edr.limit) == ("tree", "network")
    assert edr.gb_per_s == pytest.approx(2 * 100 * 15 / 16 * 0.98)


def test_channels_of_fast_nics_are_doubled_if_there_are_few():
    few = between_nodes(H100, network(2, nics=4), 8 * GIB)
    assert (few.algorithm, few.terms[1].sum) == ("tree", "8 channels · 41.4 GB/s")
    assert few.gb_per_s == pytest.approx(8 * 41.4)
    nvls = between_nodes(H100, network(2, nics=4), 8 * GIB, algorithms=["nvls"])
    assert (nvls.limit, nvls.gb_per_s) == ("channels", pytest.approx(4 * 57.7))
    larger = between_nodes(H100, network(3, nics=4), 8 * GIB, algorithms=["tree"])
    assert larger.terms[1].sum == "8 channels · 36 GB/s"


def test_a_tree_is_not_doubled_if_the_rate_of_its_channels_is_unknown():
    tree = between_nodes(invented(ring={8: {1: 360}}), network(2, nics=4), 8 * GIB, algorithms=["tree"])
    assert tree.gb_per_s == pytest.approx(200 * 15 / 16 * 0.98)


@pytest.mark.parametrize("nodes", [2, 4])
def test_over_ethernet_a_group_reaches_less_and_it_is_a_guess(nodes):
    infiniband = between_nodes(H100, network(nodes), 8 * GIB)
    ethernet = between_nodes(H100, dataclasses.replace(network(nodes), link_layer="Ethernet"), 8 * GIB)
    assert ethernet.gb_per_s == pytest.approx(0.9 * infiniband.gb_per_s)
    assert {term.grade for term in ethernet.terms} == {"guess"}
    assert "over Ethernet" in ethernet.terms[0].sum
    rail = dataclasses.replace(network(2, ranks=2), link_layer="Ethernet")
    assert on_rail(rail).gb_per_s == pytest.approx(48)


def test_an_efficiency_learnt_over_ethernet_is_not_lowered_again():
    over_ethernet = dataclasses.replace(network(8), link_layer="Ethernet")
    guessed = between_nodes(H100, over_ethernet, 8 * GIB)
    efficiency = learn([(0.85 * 400 * 63 / 64, guessed)] * 3)
    assert efficiency.curves["nvls"][8] == pytest.approx(0.85)
    learnt = between_nodes(H100, over_ethernet, 8 * GIB, efficiency, ["nvls"])
    assert learnt.gb_per_s == pytest.approx(0.85 * 400 * 63 / 64)


def test_the_floor_is_as_low_as_healthy_machines_are():
    assert within_node(H100, 8, 8 * GIB).floor_gb_per_s == pytest.approx(0.85 * 478.9)
    mine = H100.expecting({"allreduce.nvls.8": 455}, "prod.yml:3:1")
    assert within_node(mine, 8).floor_gb_per_s == 455
    rail = on_rail(network(2, ranks=2))
    assert rail.floor_gb_per_s == pytest.approx(0.8 * 48)
    learnt = on_rail(network(2, ranks=2), efficiency=learn([(47.0, rail)] * 3))
    assert learnt.floor_gb_per_s == pytest.approx(47)


def test_without_nvls_a_group_goes_by_the_ring():
    expected = between_nodes(H100, network(8), 8 * GIB, algorithms=["ring", "tree"])
    assert (expected.algorithm, expected.limit) == ("ring", "NVLink")
    assert expected.gb_per_s == pytest.approx(365)


@EACH_SWITCHED
def test_a_payload_too_small_to_judge_has_no_expectation(profile):
    assert within_node(profile, 8, GIB - 1) is None
    assert on_rail(network(2, ranks=2), 256 << 20) is None
    assert between_nodes(profile, network(180), GIB) is None  # 1440 ranks
    assert between_nodes(profile, network(180)) is not None


@pytest.mark.parametrize(("ranks", "gib"), [(2, 1), (128, 1), (129, 129 / 128), (1440, 11.25)])
def test_the_payload_to_judge_by_grows_with_the_ranks(ranks, gib):
    assert min_payload_bytes(ranks) == gib * GIB


def test_nothing_is_expected_of_an_unknown_machine():
    assert within_node(Profile("none"), 8) is None
    assert between_nodes(Profile("none"), network(4)) is None
    assert within_node(load("titan-rtx-2x"), 2) is None
    assert within_node(H100, 1) is None


def test_a_figure_is_as_good_as_its_poorest_number():
    assert within_node(H100, 8).grade == "measured-published"
    assert within_node(H100, 3, 4 * GIB).grade == "guess"  # a ring of three was not measured
    assert within_node(H200, 8, 2 * GIB, nvls=False).grade == "guess"  # nor one with so small a payload
    assert not between_nodes(H100, network(8)).may_fail
    assert not between_nodes(H100, network(2)).may_fail
    assert not on_rail(network(2, ranks=2)).may_fail


def test_what_was_learnt_here_may_fail_a_node():
    guessed = between_nodes(H100, network(8))
    efficiency = learn([(share * cap(guessed), guessed) for share in (0.90, 0.91, 0.97)])
    assert efficiency.learnt == {"nvls"}
    expected = between_nodes(H100, network(16), efficiency=efficiency, algorithms=["nvls"])
    assert expected.gb_per_s == pytest.approx(0.91 * 400 * 127 / 128)
    assert expected.grade == "datasheet"
    assert "e measured on this fleet" in expected.terms[-1].source
    assert between_nodes(H100, network(16), 8 * GIB, efficiency, ["nvls"]).may_fail
    assert not between_nodes(H100, network(16), efficiency=efficiency, algorithms=["tree"]).may_fail


def test_an_efficiency_learnt_with_a_large_payload_is_a_guess_for_a_small_one():
    rail = on_rail(network(2, ranks=2), 8 * GIB)
    efficiency = learn([(48.5, rail)] * 3)
    assert on_rail(network(2, ranks=2), 8 * GIB, efficiency).may_fail
    assert not on_rail(network(2, ranks=2), GIB, efficiency).may_fail


@pytest.mark.parametrize("figures", [[48.0, 48.0], [30.0, 30.0, 48.0, 30.0], [60.0] * 5])
def test_too_few_figures_or_a_fabric_slow_throughout_teach_nothing(figures):
    rail = on_rail(network(2, ranks=2))
    assert learn([(figure, rail) for figure in figures]).learnt == frozenset()


def test_figures_that_nvlink_decides_teach_nothing_of_the_network():
    pair = between_nodes(H100, network(2))
    node = within_node(H100, 8)
    assert learn([(460.0, pair), (460.0, node)] * 5).learnt == frozenset()


NVL72 = load("gb200-nvl72")


@pytest.mark.parametrize(
    ("racks", "gib", "measured"),
    [(1, 4, 839.2), (1, 8, 834.6), (2, 16, 810.4), (20, 16, 405.7), (20, 8, None), (20, 32, 405.7)],
)
def test_where_nvlink_spans_nodes_only_what_was_measured_counts(racks, gib, measured):
    expected = between_nodes(NVL72, network(18 * racks, ranks=72 * racks, nics=4), gib * GIB)
    assert (expected and expected.gb_per_s) == (measured and pytest.approx(measured, rel=0.001))


def test_between_measured_numbers_of_ranks_it_is_a_guess_and_beyond_them_nothing():
    between = between_nodes(NVL72, network(90, ranks=360, nics=4), 16 * GIB)
    assert 405.7 < between.gb_per_s < 810.4
    assert between.grade == "guess"
    assert between.terms[0].sum.startswith("360 ranks, between 810 with 144 and 406 with 1440")
    assert between_nodes(NVL72, network(400, ranks=1600, nics=4), 16 * GIB) is None
    assert between_nodes(NVL72, network(18, ranks=72, nics=4), 8 * GIB).may_fail


def trays(count, size=8 * GIB, rack=NVL72):
    if count == 1:
        return within_node(rack, 4, size)
    return between_nodes(rack, network(count, ranks=4 * count, nics=4), size)


@pytest.mark.parametrize("count", range(1, 19))
def test_every_number_of_trays_of_a_rack_has_an_expectation(count):
    expected = trays(count)
    assert expected.may_fail == (count in {1, 2, 18})
    assert trays(max(count - 1, 1)).gb_per_s <= expected.gb_per_s <= 834.6
    assert trays(count, min_payload_bytes(4 * count)) is not None


@pytest.mark.parametrize("count", range(1, 19))
def test_gb300_has_the_figures_of_gb200_as_guesses(count):
    expected = trays(count, rack=load("gb300-nvl72"))
    assert expected.gb_per_s == pytest.approx(trays(count).gb_per_s)
    assert not expected.may_fail


def test_the_published_numbers_of_trays_are_what_is_expected():
    assert [trays(count).gb_per_s for count in (1, 2, 18)] == [679.6, 811, 834.6]


def test_a_host_may_expect_one_number_of_its_own():
    mine = H100.expecting({"allreduce.nvls.8": 455}, "prod.yml:3:1")
    assert within_node(mine, 8).gb_per_s == 455
    assert within_node(mine, 8).grade == "measured-here"


SIZES = st.integers(8 * GIB, 64 * GIB)


@EACH_SWITCHED
@given(nodes=st.integers(2, 128), size=SIZES, rate=st.floats(1, 400))
def test_no_expectation_passes_either_cap(profile, nodes, size, rate):
    found = between_nodes(profile, network(nodes, rate=rate), size)
    within = within_node(profile, 8, size)
    assert found.gb_per_s <= within.gb_per_s + 1e-9
    assert found.gb_per_s <= 8 * rate * (2 if nodes == 2 else 1)
    assert found.gb_per_s == min(term.gb_per_s for term in found.terms)


@given(nodes=st.integers(2, 60), size=SIZES, rate=st.floats(1, 200), more=st.floats(0, 50))
def test_a_faster_nic_never_lowers_what_is_expected(nodes, size, rate, more):
    slow, fast = (between_nodes(H100, network(nodes, rate=r), size).gb_per_s for r in (rate, rate + more))
    assert fast >= slow - 1e-9


@given(st.integers(2, 128), st.lists(SIZES, min_size=2, max_size=2).map(sorted))
def test_a_larger_payload_never_lowers_what_is_expected(nodes, sizes):
    small, large = (between_nodes(B200, network(nodes), size).gb_per_s for size in sizes)
    assert large >= small - 1e-9


@given(
    curve=st.dictionaries(st.integers(1, 64), st.floats(1, 1000), min_size=1, max_size=6),
    gib=st.floats(1, 128),
)
def test_along_a_curve_nothing_leaves_its_neighbours(curve, gib):
    assume(gib * GIB >= GIB)
    expected = within_node(invented(ring={8: curve}), 8, int(gib * GIB))
    assert min(curve.values()) - 1e-9 <= expected.gb_per_s <= max(curve.values()) + 1e-9
    assert (expected.grade == "guess") == (int(gib * GIB) / GIB < min(curve))


@given(st.floats(0.8, 1.02), st.integers(3, 9), SIZES)
def test_learning_gives_back_what_the_fabric_is(share, count, size):
    rail = on_rail(network(2, ranks=2), size)
    learnt = learn([(share * 50, rail)] * count)
    assume(0.8 < share < 1.02)
    assert on_rail(network(2, ranks=2), size, learnt).gb_per_s == pytest.approx(share * 50)
