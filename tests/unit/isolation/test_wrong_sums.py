"""A GPU that computes wrong sums is named, and no healthy part: not its NIC, nor a leaf, nor what is slow beside it."""

import dataclasses
import random
import zlib

import pytest

from gpuops.isolation import blame, next_round
from gpuops.isolation.cabling import Cabling, build_fabric, build_unmapped_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.rounds import GroupResult

pytestmark = pytest.mark.sampled

ALL = ("node", "rail", "pair", "group")
WHOLE, FEW, LINE = 478.0, 363.0, 48.5


class Machines:
    """Nodes of which some GPUs or NICs give wrong sums (``wrong``), and others are slow (``kept``, a fraction)."""

    def __init__(self, fabric, wrong=(), kept=None, *, is_bad_build=False):
        self.fabric, self.wrong, self.kept = fabric, set(wrong), kept or {}
        self.is_bad_build = is_bad_build

    def parts(self, group):
        """Every GPU and NIC that takes part; GPU k is measured on the rail of NIC k."""
        for name in group.nodes:
            node = self.fabric.nodes[name]
            nics = [nic for nic in node.nics if group.rail in {None, nic.rail}] if len(group.nodes) > 1 else []
            yield from (f"{name}:{nic.name}" for nic in nics)
            on_rail = [gpu for gpu, nic in zip(node.gpus, node.nics, strict=False) if nic.rail == group.rail]
            yield from (f"{name}:gpu{gpu}" for gpu in group.gpus or (node.gpus if group.rail is None else on_rail))

    def figure(self, group, number):
        parts = set(self.parts(group))
        if self.is_bad_build or parts & self.wrong:
            return GroupResult(group, None, "wrong", detail="wrong sums")
        # a rail is measured over PCIe, so that a slow NVLink does not show on it
        slow = [k for part, k in self.kept.items() if part in parts and (group.rail is None or ":gpu" not in part)]
        inside = FEW if group.gpus or group.variant else WHOLE
        rate = inside if len(group.nodes) == 1 else LINE * (1 if group.rail is not None else len(self.fabric.rails))
        wobble = 1 + (zlib.crc32(repr((group, number)).encode()) % 1001 - 500) / 1e5
        return GroupResult(group, rate * min(slow, default=1.0) * wobble)

    def judged(self, scopes=ALL):
        evidence = Evidence(self.fabric, scopes=scopes)
        while (planned := next_round(evidence)) is not None:
            figures = tuple(self.figure(group, len(evidence.rounds)) for group in planned.groups)
            evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, figures)))
        return blame(evidence)


def rails(nodes, gpus=8):
    return build_fabric(Cabling(nodes=nodes, gpus=gpus, unit=min(nodes, 4), leaves=gpus))


def named(result):
    return {(each.part, each.kind, each.alternatives) for each in result.blamed}


@pytest.mark.parametrize("nodes", [2, 4, 8, 16])
def test_a_miscounting_gpu_is_the_only_part_that_is_blamed(nodes):
    result = Machines(rails(nodes), ["gpu001:gpu3"]).judged()
    assert named(result) == {("gpu001:gpu3", "wrong", ())}
    assert (result.fleet, result.suspects, result.unclear, result.contention) == ((), (), (), ())


@pytest.mark.parametrize("nodes", [4, 8, 16])
@pytest.mark.parametrize("slow", ["gpu001:gpu5", "gpu000:gpu5", "gpu001:mlx5_5", "gpu000:mlx5_2"])
def test_what_is_slow_beside_it_is_slow_and_does_not_miscount(nodes, slow):
    result = Machines(rails(nodes), ["gpu001:gpu3"], {slow: 0.7}).judged()
    assert named(result) == {("gpu001:gpu3", "wrong", ()), (slow, "slow", ())}


@pytest.mark.parametrize("slow", [gpu for gpu in range(8) if gpu != 3])
@pytest.mark.parametrize("nodes", [2, 4])
def test_a_slow_gpu_of_the_same_node_is_told_from_it_wherever_it_is(nodes, slow):
    result = Machines(rails(nodes), ["gpu001:gpu3"], {f"gpu001:gpu{slow}": 0.75}).judged()
    assert named(result) == {("gpu001:gpu3", "wrong", ()), (f"gpu001:gpu{slow}", "slow", ())}


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_a_nic_that_corrupts_is_named_and_not_the_gpu_behind_it(nodes):
    assert named(Machines(rails(nodes), ["gpu001:mlx5_3"]).judged()) == {("gpu001:mlx5_3", "wrong", ())}


def test_of_two_nodes_no_nic_is_blamed_and_both_are_named():
    result = Machines(rails(2), ["gpu001:mlx5_3"]).judged()
    assert not result.blamed
    (sentence,) = (each for each in result.unclear if "one pair" in each)
    assert set(sentence.parts) == {"gpu000:mlx5_3", "gpu001:mlx5_3", "leaf:L3"}


@pytest.mark.parametrize("faulty", ["gpu001:gpu3", "gpu001:mlx5_3"])
def test_rails_alone_do_not_tell_a_gpu_from_its_nic(faulty):
    (part,) = Machines(rails(4), [faulty]).judged(("rail",)).blamed
    assert (part.kind, {part.part, *part.alternatives}) == ("wrong", {"gpu001:gpu3", "gpu001:mlx5_3"})


@pytest.mark.parametrize("nodes", [2, 4, 8, 16])
def test_a_bad_build_is_a_finding_on_the_fleet(nodes):
    result = Machines(rails(nodes), is_bad_build=True).judged()
    assert (result.blamed, {cause.kind for cause in result.fleet}) == ((), {"wrong"})
    assert {cause.nodes for cause in result.fleet} == {tuple(rails(nodes).nodes)}


def test_a_gpu_in_each_of_two_nodes_is_no_bad_build():
    result = Machines(rails(2), ["gpu000:gpu4", "gpu001:gpu3"]).judged()
    assert named(result) == {("gpu000:gpu4", "wrong", ()), ("gpu001:gpu3", "wrong", ())}
    assert result.fleet == ()


@pytest.mark.parametrize("gpu", [0, 1])
def test_of_the_two_gpus_of_a_node_its_rails_show_which_it_is(gpu):
    assert named(Machines(rails(4, gpus=2), [f"gpu001:gpu{gpu}"]).judged()) == {(f"gpu001:gpu{gpu}", "wrong", ())}


def drawn(seed):
    """A fabric with a miscounting GPU, perhaps with something slow in its node or in another one."""
    rng = random.Random(seed)
    gpus = rng.choice((4, 8))
    cabling = Cabling(rng.choice((4, 6, 8, 12, 16)), gpus, rng.choice((2, 4, 8)), rng.choice((gpus, 1, 2)))
    fabric = build_fabric(cabling) if rng.random() < 0.7 else build_unmapped_fabric(cabling)
    names = list(fabric.nodes)
    node, gpu = rng.choice(names), rng.randrange(gpus)
    other = rng.choice([name for name in names if name != node])
    slow = rng.choice(
        (None, f"{node}:gpu{(gpu + 1) % gpus}", f"{other}:gpu{gpu}", f"{other}:mlx5_{rng.randrange(gpus)}")
    )
    slow = rng.choice((slow, f"{node}:mlx5_{(gpu + 2) % gpus}"))
    return fabric, f"{node}:gpu{gpu}", {slow: rng.uniform(0.4, 0.85)} if slow else {}


@pytest.mark.parametrize("first", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(20, 200, 20))])
def test_no_healthy_part_is_accused_on_any_of_many_fabrics(first):
    for seed in range(first, first + 20):
        fabric, faulty, slow = drawn(seed)
        blamed = Machines(fabric, [faulty], slow).judged().blamed
        assert [each.part for each in blamed if each.kind == "wrong"] == [faulty], seed
        assert all({faulty, *slow} & {each.part, *each.alternatives} for each in blamed), (seed, blamed)
