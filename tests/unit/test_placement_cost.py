"""Placements cost little: as little as the best of all on small clusters, and nothing is torn that fits whole."""

import itertools
import random
from dataclasses import replace

import pytest

from gpuops.errors import LayoutError
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.placement.traffic import LinkSpeeds, contacts_of, cost, speeds_of, tier_of

CASES = 220
WITHIN = 1.05
LAYOUTS = (
    "dp={n}", "dp={n},zero=3", "dp={n},tp=2", "dp={n},pp=2,chunks=8", "dp={n},pp=3,chunks=8",
    "dp={n},pp=2,tp=2,chunks=4", "dp={n},cp=2", "dp={n},ep={n}", "dp={n},ep=2,pp=2,chunks=8",
    "dp={n},pp=4,vpp=2,chunks=8,tp=2",
)  # fmt: skip


def node(name, gpus=8, *, unit=None, rack=None, domain=None):
    shapes = tuple(GpuShape(index, "", "", 0, None, 0) for index in range(gpus))
    return NodeShape(name, name, shapes, (unit,) if unit else (), rack, domain or name)


def cluster(chance):
    """Two or three units of racks, perhaps with NVLink domains, seven nodes at most, some with dead GPUs."""
    has_domains, healthy = chance.random() < 0.4, chance.choice((2, 4))
    nodes = []
    for rack in range(chance.randint(2, 4)):
        unit, name = f"L{rack % chance.choice((1, 2, 3))}", f"rack{rack}"
        for _ in range(chance.randint(1, 3)):
            gpus = healthy - (chance.random() < 0.15)
            domain = name if has_domains else None
            nodes.append(node(f"n{len(nodes)}", gpus, unit=unit, rack=name, domain=domain))
    chance.shuffle(nodes)
    return nodes[:7]


def layout_for(chance, nodes):
    """A random layout that leaves up to two nodes as spares."""
    gpus = sum(len(each.gpus) for each in nodes) * chance.choice((1.0, 0.85, 0.7))
    text = chance.choice(LAYOUTS)
    one = parse_layout(text.format(n=2)).ranks // 2
    replicas = max(2, int(gpus // one))
    return parse_layout(text.format(n=replicas if "ep=2" not in text else replicas // 2 * 2))


def cheapest_of_all(placement, nodes):
    """The least cost of any order of any nodes with the GPUs that the positions need."""
    sizes = [len(each.gpus) for each in placement.nodes]
    whole = {each.name: each for each in nodes}
    needed = [len(whole[each.name].gpus) for each in placement.nodes]
    contacts, best, seen = contacts_of(placement.layout, sizes), float("inf"), set()
    for order in itertools.permutations(nodes, len(sizes)):
        places = tuple((each.leaves, each.rack, each.domain, len(each.gpus)) for each in order)
        if [len(each.gpus) for each in order] == needed and places not in seen:
            seen.add(places)
            best = min(best, cost(contacts, order, LinkSpeeds()))
    return best


def ratios(seeds):
    for seed in seeds:
        chance = random.Random(seed)
        nodes = cluster(chance)
        layout = layout_for(chance, nodes)
        try:
            placement = place(layout, nodes, force=True)
        except LayoutError:
            continue
        found = cost(contacts_of(layout, [len(each.gpus) for each in placement.nodes]), placement.nodes, LinkSpeeds())
        best = cheapest_of_all(placement, nodes)
        yield found / best if best else 1.0


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(10))
def test_a_placement_costs_as_much_as_the_best_of_all(part):
    found = list(ratios(range(part * CASES // 10, (part + 1) * CASES // 10)))
    assert len(found) > CASES // 20
    assert sum(ratio <= WITHIN for ratio in found) >= 0.95 * len(found)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_torn_that_fits_whole(seed):
    chance = random.Random(seed)
    sizes = [chance.randint(1, 40) for _ in range(chance.randint(2, 8))]
    nodes = [node(f"u{unit}-{k}", unit=f"L{unit}") for unit, size in enumerate(sizes) for k in range(size)]
    chance.shuffle(nodes)
    needed = chance.randint(1, max(sizes))
    placement = place(parse_layout(f"dp={needed},tp=8"), nodes)
    assert len({each.leaves for each in placement.nodes}) == 1
    smallest = min(size for size in sizes if size >= needed)
    assert sizes[int(placement.nodes[0].leaves[0][1:])] == smallest, "it does not fit best"


def units(*sizes):
    return [node(f"gpu{unit}{k:02}", unit=f"L{unit}") for unit, size in enumerate(sizes) for k in range(size)]


def racks(*sizes):
    return [
        node(f"gpu{rack}{k:02}", 4, unit="L", rack=f"r{rack}", domain=f"r{rack}")
        for rack, size in enumerate(sizes)
        for k in range(size)
    ]


def test_twenty_eight_nodes_come_from_the_unit_of_thirty_two_and_not_from_that_of_six():
    placement = place(parse_layout("dp=28,tp=8"), units(6, 32))
    assert ({each.leaves for each in placement.nodes}, placement.torn) == ({("L1",)}, ())


def test_experts_fit_the_rack_of_eighteen_and_not_that_of_five():
    placement = place(parse_layout("dp=64,ep=64"), racks(5, 18))
    assert {each.domain for each in placement.nodes} == {"r1"}


def test_experts_that_fit_no_rack_need_a_word_and_are_told():
    with pytest.raises(LayoutError, match="1 of 1 ep groups crosses"):
        place(parse_layout("dp=64,ep=64"), racks(9, 9))
    forced = place(parse_layout("dp=64,ep=64"), racks(9, 9), force=True)
    assert any(crossing.axis == "ep" for crossing in forced.torn)
    assert any("ep groups" in note for note in forced.notes)


def test_replicas_that_fit_no_unit_are_told_and_need_no_word():
    placement = place(parse_layout("dp=12,tp=8"), units(6, 6))
    assert [str(crossing) for crossing in placement.torn] == ["8 of 8 dp groups cross the spine"]


def test_stages_cross_the_spine_if_replicas_are_larger():
    """Two stages of eight nodes each, in two units of eight: each stage in its own unit, only activations between."""
    placement = place(parse_layout("dp=8,pp=2,tp=8,chunks=8"), units(8, 8))
    assert {crossing.axis for crossing in placement.torn} == {"pp"}
    slow = place(parse_layout("dp=8,pp=2,tp=8,chunks=4096"), units(8, 8))
    assert {crossing.axis for crossing in slow.torn} == {"dp"}


def test_measured_speeds_count():
    nodes = [node("a1", unit="A", rack="r1"), node("b1", unit="A", rack="r2"), node("c1", unit="B", rack="r3")]
    assert {each.name for each in place(parse_layout("dp=16"), nodes).nodes} == {"a1", "b1"}
    fast_spine = replace(LinkSpeeds(), unit=10.0, spine=40.0)
    assert "c1" in {each.name for each in place(parse_layout("dp=16"), nodes, speeds=fast_spine).nodes}


def test_tiers_that_were_not_measured_are_as_slow_as_those_that_were():
    speeds = speeds_of({"unit": 24.0})
    assert (speeds.unit, speeds.spine, speeds.node) == (24.0, 16.0, 450.0)
    assert speeds_of({}) == LinkSpeeds()


def test_unequal_nodes_are_used_whole():
    seven = [*units(7), node("small", 7, unit="L0")]
    placement = place(parse_layout("dp=60"), seven)
    assert [len(placement.on(each.name)) for each in placement.nodes] == [8] * 7 + [4]
    halves = [*units(4), node("half1", 4, unit="L0"), node("half2", 4, unit="L0")]
    assert [len(each.gpus) for each in place(parse_layout("dp=40"), halves).nodes] == [8] * 4 + [4, 4]
    with_tp = place(parse_layout("dp=20,tp=2"), halves)
    assert [len(each.gpus) for each in with_tp.nodes] == [8] * 4 + [4, 4]
    for rank in range(40):
        where, gpu = with_tp.location(rank)
        assert (with_tp.ranks[rank].node, with_tp.ranks[rank].gpu) == (where.name, gpu.index)


def test_tiers_are_named_from_near_to_far():
    a = node("a", unit="L", rack="r")
    near = {"domain": replace(a, name="b", domain="a"), "rack": node("b", unit="L", rack="r")}
    far = {"unit": node("b", unit="L", rack="s"), "spine": node("b", unit="M", rack="r"), "node": a}
    for tier, other in {**near, **far}.items():
        assert tier_of([a, other]) == tier
