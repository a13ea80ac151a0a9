"""NVLink domains of racks: two racks of one profile, and what a tray in another domain looks like."""

import pytest

from gpuops.assessment import compare, profile_of
from gpuops.inventory import Inventory
from gpuops.judging import discover
from gpuops.probing import Unknown
from gpuops.profile import load

CHECK = discover()["nvlink-domain"]
ONE, TWO = "00000001-0000-0000-0000-000000000001", "00000001-0000-0000-0000-000000000002"
ZEROS = "00000000-0000-0000-0000-000000000000"
GB200 = load("gb200-nvl72")


@pytest.fixture
def fleet(h100):
    """Verdicts by node: ``fleet({"a1": (UUID, clique), …}, {"a1": "rack1", …})``."""

    def judge_it(domains, racks, **changes):
        facts, profiles = {}, {}
        for node, (uuid, clique) in domains.items():
            machine = h100.with_gpus(fabric_cluster_uuid=uuid, fabric_clique_id=clique)
            machine = changes.get(node, lambda same: same)(machine)
            facts[node] = machine.facts(node)
            rack = racks.get(node)
            profiles[node] = GB200.expecting({"rack": rack}, "inventory") if rack else GB200
        return {v.node: v for v in compare([CHECK], facts, profiles)}

    return judge_it


def two_racks(count=4):
    domains = {f"a{n}": (ONE, 2) for n in range(count)} | {f"b{n}": (TWO, 7) for n in range(count)}
    return domains, {node: f"rack-{node[0]}" for node in domains}


def told(verdicts):
    return {v.node: [f.severity for f in v.findings] for v in verdicts.values() if v.findings}


def test_each_rack_has_its_own_domain(fleet):
    verdicts = fleet(*two_racks())
    assert {v.status for v in verdicts.values()} == {"pass"}


@pytest.mark.parametrize(
    ("domain", "severity"), [((TWO, 2), "fail"), ((ZEROS, 0), "fail"), ((ONE, 3), "warn"), ((TWO, 7), "fail")]
)
def test_a_minority_of_a_rack_is_blamed(fleet, domain, severity):
    domains, racks = two_racks()
    verdicts = fleet({**domains, "a3": domain}, racks)
    assert told(verdicts) == {"a3": [severity]}
    (finding,) = verdicts["a3"].findings
    assert (finding.part, finding.found) == ("node", f"{domain[0]} clique {domain[1]}")
    assert "24 of 32 GPUs of rack rack-a" in finding.message


def test_one_gpu_of_a_tray_is_named(fleet):
    domains, racks = two_racks()
    verdicts = fleet(domains, racks, a1=lambda machine: machine.with_gpu(2, fabric_clique_id=9))
    assert [(f.part, f.severity) for f in verdicts["a1"].findings] == [("gpu2", "warn")]


def test_a_tie_is_a_split_that_blames_no_node(fleet):
    domains, racks = two_racks()
    verdicts = fleet({**domains, "a2": (TWO, 2), "a3": (TWO, 2)}, racks)
    assert told(verdicts) == {"": ["warn"]}
    (finding,) = verdicts[""].findings
    assert finding.message.startswith("split: rack rack-a has ")


def test_baseboards_and_unknown_racks_are_skipped(fleet):
    domains, racks = two_racks()
    assert {v.status for v in fleet(domains, {}).values()} == {"skipped"}
    alone = dict.fromkeys(domains, (ZEROS, 0))
    assert {v.status for v in fleet(alone, racks).values()} == {"skipped"}
    assert {v.status for v in fleet(dict.fromkeys(domains, (None, None)), racks).values()} == {"skipped"}


def test_a_node_that_does_not_answer_is_unknown_and_the_others_are_judged(fleet):
    domains, racks = two_racks()
    verdicts = fleet({**domains, "a3": (TWO, 2)}, racks, a0=lambda machine: machine.but(gpus=Unknown("no answer")))
    assert (verdicts["a0"].status, verdicts["a3"].status, verdicts["a1"].status) == ("unknown", "fail", "pass")


def test_the_inventory_says_which_nodes_share_a_rack(h100, tmp_path):
    file = tmp_path / "hosts.yml"
    file.write_text("all:\n  hosts:\n    a1: {rack: r7, profile: gb200-nvl72}\n")
    host = Inventory.open(str(file)).hosts["a1"]
    assert profile_of(host, h100.facts("a1"), [GB200]).get("rack") == "r7"


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ({"fabric_clique_id": 9}, ["gpu2"]),
        ({"fabric_cluster_uuid": None, "fabric_clique_id": None}, []),  # an error in place of a value
        ({"fabric_clique_id": None}, []),
    ],
)
def test_a_gpu_is_apart_from_its_node_only_by_values_that_were_read(h100, other, found):
    joined = {"fabric_state": "Completed", "fabric_cluster_uuid": "a-1", "fabric_clique_id": 1}
    machine = h100.with_gpus(**joined).with_gpu(2, **{**joined, **other})
    findings = [f for f in machine.judge("fabric-manager").findings if "domain and clique" in f.message]
    assert [str(finding.part) for finding in findings] == found
