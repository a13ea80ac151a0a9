"""What NICs count is evidence beside a blamed part; only a link that went down blames a part by itself."""

import dataclasses

import pytest

from gpuops.isolation import blame
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.cases import Case
from gpuops.isolation.counters import CounterEvidence, meaning_of, totals_of
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.faults import parse_fault
from gpuops.isolation.node_evidence import evidence_of, parse_node_evidence, to_answers
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.simulation import Disturbances
from gpuops.isolation.trials import run

pytestmark = pytest.mark.sampled

CABLING = Cabling(nodes=32, gpus=8, unit=16, leaves=8)
FABRIC = build_fabric(CABLING)
ALL = [f"gpu{node:03}:mlx5_{rail}" for node in range(32) for rail in range(8)]


def evidence(*faults, counted=None):
    """A measurement in which the first round counted what ``counted`` holds by part, else nothing."""
    planted = tuple(parse_fault(text, FABRIC) for text in faults)
    measured = run(Case(CABLING, planted, Disturbances(noise=0.002), seed=3)).evidence
    first, *rest = measured.rounds
    return dataclasses.replace(measured, rounds=(dataclasses.replace(first, counters=counted or {}), *rest))


def test_what_a_blamed_nic_counted_stands_beside_it_next_to_the_others():
    counted = {name: {"port_xmit_wait": 1000} for name in ALL} | {
        "gpu017:mlx5_3": {"symbol_error": 412, "port_xmit_wait": 1100},
        "gpu018:mlx5_3": {"packet_seq_err": 9},
    }
    (blamed,) = blame(evidence("gpu017:mlx5_3:slow=35", counted=counted)).blamed
    assert blamed.part == "gpu017:mlx5_3"
    assert blamed.evidence[-1] == "its link has errors: symbol_error +412 (others 0)"


def test_what_the_network_did_is_told_apart_from_what_the_link_did():
    counted = {name: {"rx_prio3_pause": 10} for name in ALL}
    counted["gpu017:mlx5_3"] = {"rx_prio3_pause": 90_000, "np_cnp_sent": 77, "rx_discards_phy": 5, "out_of_sequence": 2}
    (blamed,) = blame(evidence("gpu017:mlx5_3:slow=35", counted=counted)).blamed
    lost, host, held_back = blamed.evidence[-3:]
    assert lost == "packets were lost and sent again: out_of_sequence +2 (others 0)"
    assert host == "a node or its PCIe did not take what arrived: rx_discards_phy +5 (others 0)"
    assert held_back.startswith("the network held its traffic back: np_cnp_sent +77 (others 0), rx_prio3_pause +90,000")


@pytest.mark.parametrize(
    "counter", ["symbol_error", "packet_seq_err", "rx_prio3_pause", "rx_discards_phy", "port_xmit_wait", "unheard_of"]
)
def test_no_counter_of_errors_or_traffic_blames_a_part_by_itself(counter):
    verdict = blame(evidence(counted={"gpu005:mlx5_1": {counter: 10**9}}))
    assert not verdict.blamed
    assert not verdict.is_incomplete


@pytest.mark.parametrize("counter", ["link_downed", "link_down_events_phy"])
def test_a_link_that_went_down_is_blamed_although_its_speed_is_normal(counter):
    (blamed,) = blame(evidence(counted={"gpu005:mlx5_1": {counter: 2}})).blamed
    assert (blamed.part, blamed.kind) == ("gpu005:mlx5_1", "link-down")
    assert blamed.evidence == (f"its link went down: {counter} +2 (others 0)",)


def test_the_ports_of_a_leaf_that_went_down_together_blame_the_leaf():
    on_leaf = [f"gpu{node:03}:mlx5_2" for node in range(16)]
    (blamed,) = blame(evidence(counted={name: {"link_downed": 1} for name in on_leaf})).blamed
    assert (blamed.part, blamed.kind) == ("leaf:L2", "link-down")


def test_the_links_of_a_node_that_went_down_together_blame_the_node():
    (blamed,) = blame(evidence(counted={f"gpu007:mlx5_{rail}": {"link_downed": 1} for rail in range(8)})).blamed
    assert blamed.part == "gpu007"


def test_a_slow_nic_whose_link_went_down_is_blamed_once():
    (blamed,) = blame(evidence("gpu017:mlx5_3:slow=35", counted={"gpu017:mlx5_3": {"link_downed": 1}})).blamed
    assert blamed.kind == "slow"
    assert blamed.evidence[-1] == "its link went down: link_downed +1 (others 0)"


def test_devices_outside_the_fabric_blame_nothing():
    assert not blame(
        evidence(counted={"gpu005:mlx5_bond_0": {"link_downed": 3}, "gpu005:eno1": {"tx_errors": 9}})
    ).blamed


def test_a_contended_pair_shows_what_its_own_nics_counted_in_that_round():
    slow = GroupResult(RankGroup(("gpu000", "gpu016"), rail=1), 30.0)
    others = [GroupResult(RankGroup((f"gpu{n:03}", f"gpu{n + 16:03}"), rail=1), 48.0) for n in range(1, 16)]
    again = [GroupResult(RankGroup((f"gpu{n:03}", f"gpu{(n + 1) % 16 + 16:03}"), rail=1), 48.0) for n in range(16)]
    counted = {"gpu000:mlx5_1": {"rp_cnp_handled": 31}, "gpu016:mlx5_1": {"rp_cnp_handled": 2}}
    rounds = [
        Measured(Round("rail", tuple(f.group for f in figures)), tuple(figures), counts)
        for figures, counts in (([slow, *others], counted), (again, {"gpu000:mlx5_1": {"rp_cnp_handled": 500}}))
    ]
    (pairs,) = blame(Evidence(FABRIC, tuple(rounds))).contention
    assert pairs.endswith("the network held its traffic back: rp_cnp_handled +33 (others 0)")


def test_each_part_and_counter_is_summed_over_the_rounds():
    measured = evidence(counted={"gpu001:mlx5_0": {"b": 1, "a": 2}})
    twice = dataclasses.replace(measured, rounds=(*measured.rounds, measured.rounds[0]))
    assert totals_of(twice) == {"gpu001:mlx5_0": {"a": 4, "b": 2}}
    assert CounterEvidence(twice).sentences("gpu001:mlx5_0") == []  # unknown names are data, not sentences


def test_counters_survive_saving_and_each_node_is_saved_once_a_round():
    counted = {"gpu001:mlx5_0": {"symbol_error": 3}, "gpu001:mlx5_7": {"link_downed": 1}, "gpu030:mlx5_1": {"x": 2}}
    measured = evidence(counted=counted)
    answers = to_answers(measured, "nccl", {})
    again = evidence_of({name: parse_node_evidence(answer) for name, answer in answers.items()})
    assert totals_of(again) == counted
    assert sum(answer.out.count('"symbol_error"') for answer in answers.values()) == 1


def test_a_priority_does_not_change_what_a_counter_means():
    assert [meaning_of(f"rx_prio{priority}_pause") for priority in range(8)] == ["held back"] * 8
    assert meaning_of("tx_prio5_pause") == "host"
    assert meaning_of("rx_packets") is None
