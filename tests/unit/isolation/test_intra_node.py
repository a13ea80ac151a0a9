import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.isolation import blame, intra_node
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNode
from gpuops.isolation.faults import FabricFault
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.simulation import Disturbances, Simulation

SHAKY = Disturbances(noise=0.015, drift=0.08)
MOST_ROUNDS = 12


def measure(engine, evidence, scopes=("node",)):
    """The first round of all nodes, then whatever is asked for, until nothing is."""
    evidence = dataclasses.replace(evidence, scopes=scopes)
    planned = Round("node", tuple(RankGroup((name,)) for name in evidence.fabric.nodes))
    while planned is not None:
        assert len(evidence.rounds) < MOST_ROUNDS
        share_nothing(planned, evidence.fabric)
        measured = Measured(planned, engine.measure(planned))
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, measured))
        planned = intra_node.next_round(evidence)
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
    assert len(evidence.rounds) == 1


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
    assert {name for m in evidence.rounds[1:] for g in m.round.groups for name in g.nodes} == {"n0", "n1", "n2"}


def test_the_engines_word_of_who_did_not_arrive_is_taken():
    def figure(group):
        hangs = group.nodes == ("n2",)
        return GroupResult(group, None, "hang", ("n2:gpu6",)) if hangs else GroupResult(group, 478.0)

    evidence = measure(Scripted(figure), Evidence(fabric_of(4)))
    (accusation,) = intra_node.blame(evidence).blamed
    assert (accusation.part, accusation.kind, len(evidence.rounds)) == ("n2:gpu6", "hang", 1)


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
    for seed in range(300):
        part = f"gpu{seed % 16:03}" + (f":gpu{seed % 8}" if seed % 3 else "")
        faults = [(part, 10 + seed % 51)] if seed % 2 else []
        named, _ = accused(16, *faults, seed=seed, disturbances=Disturbances(noise=0.02, drift=0.05))
        wrong += bool(set(named) - {part for part, _ in faults})
        missed += bool({part for part, _ in faults} - set(named))
    assert wrong == 0
    assert missed <= 2
