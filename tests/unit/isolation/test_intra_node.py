import dataclasses
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import CI

from gpuops.isolation import blame
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNode
from gpuops.isolation.faults import FabricFault
from gpuops.isolation.intra_node import searching as intra_node
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.simulation import Disturbances, Simulation

pytestmark = pytest.mark.sampled

SHAKY = Disturbances(noise=0.015, drift=0.08)
MOST_ROUNDS = intra_node.MAX_ROUNDS


def measure(engine, evidence, scopes=("node",)):
    """The first rounds of all nodes, then whatever is asked for, until nothing is."""
    evidence = dataclasses.replace(evidence, scopes=scopes)
    while (planned := intra_node.first_round(evidence) or intra_node.next_round(evidence)) is not None:
        assert len(evidence.rounds) < MOST_ROUNDS
        share_nothing(planned, evidence.fabric)
        measured = Measured(planned, engine.measure(planned))
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, measured))
    assert not intra_node.blame(evidence).suspects
    return evidence


def share_nothing(planned, fabric):
    busy = [(g.nodes[0], gpu) for g in planned.groups for gpu in g.gpus or fabric.nodes[g.nodes[0]].gpus]
    assert len(busy) == len(set(busy))


def accused(nodes, *faults, seed=0, gpus=8, expected=None, disturbances=SHAKY):
    fabric = build_fabric(Cabling(nodes, gpus, leaves=1))
    engine = Simulation(
        fabric, [FabricFault(*fault) for fault in faults], disturbances, reports_missing=False, seed=seed
    )
    known = {RankGroup((name,)): expected for name in fabric.nodes} if expected else {}
    evidence = measure(engine, Evidence(fabric, expected=known))
    return {a.part: a for a in intra_node.blame(evidence).blamed}, evidence


@given(st.integers(0, 10**6), st.integers(3, 24))
def test_nobody_is_accused_where_all_is_well_whatever_the_noise(seed, nodes):
    named, _ = accused(nodes, seed=seed)
    assert named == {}


def test_nothing_more_is_asked_where_all_is_well():
    _, evidence = accused(24, disturbances=Disturbances(noise=0.005))
    assert [len(measured.figures) for measured in evidence.rounds] == [24] * 3


@given(
    st.integers(0, 10**6),
    st.integers(3, 24),
    st.sampled_from([None, *range(15, 61)]),
    st.sampled_from(["gpu001:gpu0", "gpu002:gpu7", "gpu001"]),
)
def test_the_gpu_or_the_node_is_named_whatever_the_noise(seed, nodes, percent, part):
    named, _ = accused(nodes, (part, percent), seed=seed)
    assert set(named) == {part}
    assert named[part].kind == ("slow" if percent else "hang")


@given(st.integers(0, 10**6), st.sets(st.integers(0, 7), min_size=2, max_size=3), st.integers(15, 60))
def test_two_or_three_gpus_of_one_node_are_named_together(seed, bad, percent):
    parts = {f"gpu003:gpu{index}" for index in bad}
    named, _ = accused(8, *((part, percent) for part in parts), seed=seed)
    assert parts <= set(named)
    if len(bad) == 2:
        assert set(named) == parts


@given(st.integers(0, 10**6), st.integers(15, 60))
def test_one_node_alone_is_judged_by_what_its_profile_expects(seed, percent):
    named, _ = accused(1, ("gpu000:gpu5", percent), seed=seed, expected=478.0, disturbances=Disturbances(noise=0.01))
    assert set(named) == {"gpu000:gpu5"}
    assert accused(1, ("gpu000:gpu5", percent), seed=seed)[0] == {}


def test_of_two_nodes_the_slower_is_asked_and_its_gpu_named():
    named, _ = accused(2, ("gpu001:gpu2", 30))
    assert set(named) == {"gpu001:gpu2"}


def test_of_two_gpus_it_may_be_either():
    named, _ = accused(4, ("gpu001:gpu1", 30), gpus=2)
    assert list(named) == ["gpu001:gpu0"]
    assert named["gpu001:gpu0"].alternatives == ("gpu001:gpu1",)


def test_the_chain_of_evidence_can_be_read():
    named, _ = accused(16, ("gpu007:gpu3", 40), disturbances=Disturbances(noise=0.0))
    accusation = named["gpu007:gpu3"]
    assert accusation.evidence == (
        "218 of 363 GB/s: with each of 3 other GPUs of its node, pairs without it 363-363",
        "all 8 GPUs together: 287 of 478 GB/s",
    )
    assert (accusation.found_gb_per_s, accusation.expected_gb_per_s) == (pytest.approx(217.8), 363.0)


class Scripted:
    """An engine whose figures are written down: by node and what runs."""

    def __init__(self, figure):
        self.figure = figure

    def measure(self, planned):
        return tuple(self.figure(group) for group in planned.groups)


def fabric_of(count, gpus=8):
    return Fabric({f"n{k}": FabricNode(f"n{k}", tuple(range(gpus)), ()) for k in range(count)})


def test_where_only_nvlink_sharp_is_slow_its_switches_are_at_fault():
    asked = []

    def figure(group):
        asked.append((group.variant, group.gpus))
        return GroupResult(
            group, 300.0 if group.nodes == ("n1",) and not group.variant else 478 - 110 * bool(group.variant)
        )

    evidence = measure(Scripted(figure), Evidence(fabric_of(4)))
    (accusation,) = intra_node.blame(evidence).blamed
    assert (accusation.part, accusation.kind) == ("n1", "slow")
    assert accusation.evidence == (
        "300 of 478 GB/s: without NVLink SHARP 368 of 368 GB/s: the multicast of its NVSwitches, not a link",
    )
    assert not any(gpus for _, gpus in asked), "pairs were asked for although no link is slow"


def test_what_is_well_the_second_time_is_not_accused():
    times = iter(range(99))

    def figure(group):
        return GroupResult(group, 300.0 if group.nodes == ("n1",) and next(times) == 0 else 478.0)

    assert intra_node.blame(measure(Scripted(figure), Evidence(fabric_of(4)))) == intra_node.Blame()


def test_machines_of_another_kind_are_no_measure():
    fabric = fabric_of(7)
    expected = {RankGroup((f"n{k}",)): 478.0 if k < 3 else 838.0 for k in range(7)}

    def figure(group):
        full = 478.0 if int(group.nodes[0][1:]) < 3 else 838.0
        slow = group.nodes == ("n1",) and (not group.gpus or 5 in group.gpus)
        return GroupResult(group, full * (0.7 if slow else 1.0) * (0.8 if group.variant or group.gpus else 1.0))

    evidence = measure(Scripted(figure), Evidence(fabric, expected=expected))
    (accusation,) = intra_node.blame(evidence).blamed
    assert accusation.part == "n1:gpu5"
    assert {name for m in evidence.rounds[3:] for g in m.round.groups for name in g.nodes} == {"n0", "n1", "n2"}


def test_the_engines_word_of_who_did_not_arrive_is_taken():
    def figure(group):
        hangs = group.nodes == ("n2",)
        return GroupResult(group, None, "hang", ("n2:gpu6",)) if hangs else GroupResult(group, 478.0)

    evidence = measure(Scripted(figure), Evidence(fabric_of(4)))
    (accusation,) = intra_node.blame(evidence).blamed
    assert (accusation.part, accusation.kind) == ("n2:gpu6", "hang")
    times = [any(group.nodes == ("n2",) for group in measured.round.groups) for measured in evidence.rounds]
    assert times == [True, False, False], "each round with it lasts until its deadline"


def test_a_gpu_that_reckons_wrong_is_named_by_its_pairs():
    def figure(group):
        wrong = group.nodes == ("n0",) and (not group.gpus or 4 in group.gpus)
        return GroupResult(group, 478.0, "wrong" if wrong else "")

    evidence = measure(Scripted(figure), Evidence(fabric_of(1)))
    (accusation,) = intra_node.blame(evidence).blamed
    assert (accusation.part, accusation.kind) == ("n0:gpu4", "wrong")


def test_a_node_that_could_not_be_measured_is_unclear_and_not_accused():
    def figure(group):
        failed = group.nodes == ("n0",)
        return (
            GroupResult(group, None, "error", detail="libnccl.so.2 is missing") if failed else GroupResult(group, 478.0)
        )

    said = intra_node.blame(measure(Scripted(figure), Evidence(fabric_of(3))))
    assert said.blamed == ()
    assert said.unclear == ("n0: its GPUs could not be measured together: libnccl.so.2 is missing",)


def test_what_slows_every_node_alike_accuses_none_of_them():
    fabric = fabric_of(5)
    expected = {RankGroup((name,)): 478.0 for name in fabric.nodes}
    evidence = measure(Scripted(lambda group: GroupResult(group, 240.0)), Evidence(fabric, expected=expected))
    said = intra_node.blame(evidence)
    assert said.blamed == ()
    (cause,) = blame(evidence).fleet
    assert (cause.kind, cause.where, len(cause.nodes), cause.tested) == ("slow", "within nodes", 5, 5)
    assert (cause.found_gb_per_s, cause.expected_gb_per_s) == (240.0, 478.0)


def test_nothing_is_asked_before_the_first_round_or_outside_the_scope():
    evidence = Evidence(fabric_of(2))
    assert intra_node.next_round(evidence) is None
    assert intra_node.first_round(dataclasses.replace(evidence, scopes=("rail",))) is None
    assert intra_node.blame(evidence) == intra_node.Blame()
    slow = Measured(Round("node", (RankGroup(("n0",)),)), (GroupResult(RankGroup(("n0",)), None, "hang"),))
    assert intra_node.next_round(dataclasses.replace(evidence, rounds=(slow,), scopes=("rail",))) is None
    assert intra_node.next_round(dataclasses.replace(evidence, rounds=(slow,))) is not None


def test_a_suspect_waits_for_its_answer_and_is_not_accused_yet():
    engine = Scripted(lambda group: GroupResult(group, 200.0 if group.nodes == ("n0",) else 478.0))
    planned = Round("node", tuple(RankGroup((f"n{k}",)) for k in range(4)))
    said = intra_node.blame(Evidence(fabric_of(4), (Measured(planned, engine.measure(planned)),)))
    assert (said.blamed, said.suspects) == ((), ("n0",))


@pytest.mark.parametrize("gpus", range(2, 10))
def test_all_gpus_meet_all_once(gpus):
    rounds = list(intra_node.pairings(range(gpus)))
    met = [pair for pairs in rounds for pair in pairs]
    assert len(met) == len(set(met)) == gpus * (gpus - 1) // 2
    assert all(len({gpu for pair in pairs for gpu in pair}) == 2 * len(pairs) for pairs in rounds)


def test_in_many_seeded_cases_nobody_is_accused_wrongly_and_hardly_anybody_is_missed():
    wrong = missed = 0
    cases = 300 if CI else 45
    for seed in range(cases):
        part = f"gpu{seed % 16:03}" + (f":gpu{seed % 8}" if seed % 3 else "")
        faults = [(part, 10 + seed % 51)] if seed % 2 else []
        named, _ = accused(16, *faults, seed=seed, disturbances=Disturbances(noise=0.02, drift=0.05))
        wrong += bool(set(named) - {part for part, _ in faults})
        missed += bool({part for part, _ in faults} - set(named))
    assert wrong == 0
    assert missed <= cases / 150


class AtTimes:
    """An engine of 478 GB/s, and 363 for pairs, with 0.3 % noise. A part is slow in the rounds that are listed."""

    def __init__(self, ratio, rounds, node="n3", gpu=5, seed=0, outliers=0.0):
        self.ratio, self.rounds, self.node, self.gpu = ratio, rounds, node, gpu
        self.random, self.number, self.outliers = random.Random(seed), -1, outliers

    def measure(self, planned):
        self.number += 1
        return tuple(self.figure(group) for group in planned.groups)

    def figure(self, group):
        rate = (363.0 if group.gpus or group.variant else 478.0) * (1 + self.random.gauss(0, 0.003))
        if self.random.random() < self.outliers:
            rate *= 1 - self.random.uniform(0.2, 0.4)
        is_in_it = group.nodes == (self.node,) and (not group.gpus or self.gpu in {None, *group.gpus})
        return GroupResult(group, rate * (self.ratio if is_in_it and self.number in self.rounds else 1.0))


EVERY_SECOND = frozenset(range(0, 40, 2))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("nodes", [16, 64])
def test_gpu_that_is_slow_in_every_second_round_is_named_as_flapping(nodes, seed):
    rounds = EVERY_SECOND if seed % 2 else frozenset(range(1, 40, 2))
    evidence = measure(AtTimes(0.7, rounds, gpu=seed, seed=seed), Evidence(fabric_of(nodes)))
    (found,) = intra_node.blame(evidence).blamed
    assert (found.part, found.kind, found.alternatives) == (f"n3:gpu{seed}", "flapping", ())
    assert found.probability <= evidence.confidence
    assert found.found_gb_per_s == pytest.approx(0.7 * 478, rel=0.01)
    assert found.expected_gb_per_s == pytest.approx(478, rel=0.01)


def test_evidence_of_a_flapping_gpu_counts_its_slow_rounds_and_agrees_with_the_figure():
    evidence = measure(AtTimes(0.5, EVERY_SECOND), Evidence(fabric_of(16)))
    (found,) = intra_node.blame(evidence).blamed
    whole, pairs = found.evidence
    own = [f for m in evidence.rounds for f in m.figures if f.group.nodes == ("n3",)]
    alone = [f.gb_per_s for f in own if not f.group.gpus]
    with_it = [f.gb_per_s for f in own if 5 in f.group.gpus]
    slow = sum(rate < 300 for rate in alone)
    assert whole.startswith(
        f"all 8 GPUs together slow in {slow} of {len(alone)} rounds: {found.found_gb_per_s:.0f} of 4"
    )
    assert whole.endswith(f", else {sorted(rate for rate in alone if rate > 300)[(len(alone) - slow - 1) // 2]:.0f}")
    assert f"its pairs slow in {sum(rate < 250 for rate in with_it)} of {len(with_it)} rounds: 18" in pairs
    assert ", pairs without it 3" in pairs


def test_node_that_is_slow_at_times_in_all_pairs_is_named_itself():
    evidence = measure(AtTimes(0.7, EVERY_SECOND, gpu=None), Evidence(fabric_of(16)))
    (found,) = intra_node.blame(evidence).blamed
    assert (found.part, found.kind) == ("n3", "flapping")
    assert "no single GPU stands out" in found.evidence


def test_what_is_slow_once_is_a_disturbance_and_not_mentioned():
    evidence = measure(AtTimes(0.7, {1}), Evidence(fabric_of(16)))
    assert intra_node.blame(evidence) == intra_node.Blame()
    assert 3 < len(evidence.rounds) <= 11


def test_what_is_slow_too_seldom_to_decide_is_unclear_with_the_rounds_that_would():
    evidence = measure(AtTimes(0.7, {0, 1, 9, 18}), Evidence(fabric_of(16)))
    said = intra_node.blame(evidence)
    assert said.blamed == ()
    (sentence,) = said.unclear
    words = r"n3: within it slow in \d of \d+ rounds: 33\d of 47\d GB/s, else 47\d; about \d+ more rounds would decide"
    assert re.fullmatch(words, sentence)


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_healthy_nodes_with_outliers_are_never_blamed(share):
    for seed in range(25 if CI else 4):
        engine = AtTimes(1.0, (), seed=seed, outliers=share)
        said = intra_node.blame(measure(engine, Evidence(fabric_of(32))))
        assert (said.blamed, said.suspects) == ((), ()), seed


@pytest.mark.parametrize(("percent", "is_blamed"), [(1.5, False), (2, False), (5, True), (7, True)])
def test_small_fault_is_named_if_the_fleet_is_quiet_and_two_percent_is_none(percent, is_blamed):
    for seed in range(4):
        evidence = measure(AtTimes(1 - percent / 100, range(99), seed=seed), Evidence(fabric_of(32)))
        said = intra_node.blame(evidence)
        assert [(found.part, found.kind) for found in said.blamed] == [("n3:gpu5", "slow")] * is_blamed, (seed, said)
        assert not said.unclear


def test_blamed_steady_part_shows_the_median_pair():
    evidence = measure(AtTimes(0.6, range(99)), Evidence(fabric_of(16)))
    (found,) = intra_node.blame(evidence).blamed
    own = sorted(
        f.gb_per_s for m in evidence.rounds for f in m.figures if f.group.nodes == ("n3",) and 5 in f.group.gpus
    )
    assert found.found_gb_per_s == own[(len(own) - 1) // 2]
    assert found.evidence[0].startswith(f"{found.found_gb_per_s:.0f} of {found.expected_gb_per_s:.0f} GB/s: ")


def test_fault_of_the_switches_that_is_over_when_the_node_runs_again_is_not_blamed_as_slow():
    evidence = measure(AtTimes(0.7, {0, 1, 2, 3}), Evidence(fabric_of(16)))
    assert all(found.kind == "flapping" for found in intra_node.blame(evidence).blamed)


def failing(trouble, rounds, detail=""):
    numbers = iter(range(99))

    class Engine:
        def measure(self, planned):
            fails = next(numbers) in rounds
            return tuple(
                GroupResult(group, None if trouble == "error" else 478.0, trouble, detail=detail)
                if fails and group.nodes == ("n1",)
                else GroupResult(group, 478.0)
                for group in planned.groups
            )

    return intra_node.blame(measure(Engine(), Evidence(fabric_of(5))))


def test_error_that_did_not_come_again_is_unclear_with_its_words():
    said = failing("error", {1}, "CUDA error 719")
    assert said.blamed == ()
    assert said.unclear == ("n1: its GPUs could not be measured together in 1 of 3 rounds: CUDA error 719",)


def test_wrong_sums_in_one_round_are_enough():
    (found,) = failing("wrong", {1}).blamed
    assert (found.part, found.kind) == ("n1", "wrong")


def test_nodes_in_different_steps_run_at_once_with_controls_of_their_own():
    class Two(AtTimes):
        def figure(self, group):
            other = group.nodes == ("n9",)
            return dataclasses.replace(super().figure(group), **({"gb_per_s": 300.0} if other else {}))

    evidence = measure(Two(0.7, EVERY_SECOND), Evidence(fabric_of(32)))
    steps = [{(bool(g.gpus), g.variant) for g in m.round.groups} for m in evidence.rounds]
    assert any(len(step) > 1 for step in steps)
    for m in evidence.rounds[3:]:
        for step in {(bool(g.gpus), g.variant) for g in m.round.groups}:
            names = {g.nodes[0] for g in m.round.groups if (bool(g.gpus), g.variant) == step}
            assert len(names - {"n3", "n9"}) >= 3
    assert {(found.part, found.kind) for found in intra_node.blame(evidence).blamed} == {
        ("n3:gpu5", "flapping"),
        ("n9", "slow"),
    }


def test_many_rounds_of_all_nodes_are_judged_without_asking_for_more():
    """As a burn-in measures them."""
    engine, fabric = AtTimes(0.7, EVERY_SECOND), fabric_of(16)
    planned = Round("node", tuple(RankGroup((name,)) for name in fabric.nodes))
    evidence = Evidence(fabric, tuple(Measured(planned, engine.measure(planned)) for _ in range(40)))
    assert intra_node.first_round(evidence) is None
    assert intra_node.next_round(evidence) is None
    (found,) = intra_node.blame(evidence).blamed
    assert (found.part, found.kind) == ("n3", "flapping")
    assert "slow in 20 of 40 rounds" in found.evidence[0]
