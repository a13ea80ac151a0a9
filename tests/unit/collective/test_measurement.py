import json
import pathlib
from dataclasses import replace

import pytest

from gpuops.collective.expectations import Expectations
from gpuops.collective.measurement import Measurement
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.errors import ConnectError
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Blame, BlamedPart, CommonCause, Evidence, Measured
from gpuops.isolation.fabric import Fabric
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.profile import load
from gpuops.reasons import EXIT_CODES, Excluded
from gpuops.report.all_reduce.measurement import render
from gpuops.secret import MASK, Secret

SPECIMEN = pathlib.Path(__file__).parents[2] / "specimens" / "allreduce-report-1.json"
FABRIC = build_fabric(Cabling(2, 2, unit=2, leaves=2))
NAMES = tuple(FABRIC.nodes)
SLOW = BlamedPart("gpu001:mlx5_1", "slow", 31.2, 48.0, ("gpu000",), 1, ("31.2 of 48.0 GB/s",))
BLAME = Blame((SLOW,), ("gpu000-gpu001 on rail 0",), ("gpu000",), ("gpu002: no libnccl.so.2",))
SETTINGS = {"gpu000": ("NCCL 2.28.9", "memlock unlimited"), "gpu001": ("NCCL 2.28.9",)}
EXCLUDED = {
    "gpu002": Excluded("gpu002", "unreachable", "refused", ConnectError("gpu002", "refused", "refused")),
    "gpu003": Excluded("gpu003", "unhealthy", "fails gpu-lost", checks=("gpu-lost",)),
    "gpu004": Excluded("gpu004", "defective", "clocks: 7 s behind", do="set it"),
}


def evidence():
    """Nodes by themselves, both rails, and the pair."""
    rails = [GroupResult(RankGroup(NAMES, rail=rail), rate) for rail, rate in enumerate((48.0, 31.2))]
    rounds = [
        ("node", [GroupResult(RankGroup((name,)), 478.0) for name in NAMES]),
        ("rail", rails),
        ("pair", [GroupResult(RankGroup(NAMES), 94.0)]),
    ]
    return Evidence(
        FABRIC, tuple(Measured(Round(scope, tuple(f.group for f in fs)), tuple(fs)) for scope, fs in rounds)
    )


@pytest.fixture
def measurement():
    profile = load("hgx-h100")
    expected = Expectations(FABRIC, dict.fromkeys(NAMES, profile)).of_evidence(evidence())
    return Measurement(evidence(), BLAME, "nccl", "NCCL is on the nodes", EXCLUDED, SETTINGS, expected=expected)


def test_counters_that_cannot_be_read_are_told_and_folded(measurement):
    unread = dict.fromkeys(NAMES, "ethtool_counters: ethtool is not installed")
    told = render(replace(measurement, unread_counters=unread))
    assert "counters not read on gpu[000-001]: ethtool_counters: ethtool is not installed" in " ".join(told.split())


def test_every_measured_group_has_its_expectation_and_so_have_those_of_whole_scopes(measurement):
    groups = {figure.group for measured in evidence().rounds for figure in measured.figures}
    expectations = Expectations(FABRIC, dict.fromkeys(NAMES, load("hgx-h100")))
    assert measurement.expected == {g: e for g in groups if (e := expectations.of(g))}
    one_rail = Evidence(FABRIC, (Measured(Round("rail", ()), (GroupResult(RankGroup(NAMES[::-1], rail=1), 48.0),)),))
    assert set(expectations.of_evidence(one_rail)) == {RankGroup(NAMES[::-1], rail=1), RankGroup(NAMES, rail=1)}
    assert expectations.of_evidence(Evidence(Fabric({}))) == {}


def test_the_document_keeps_every_field_that_it_ever_had(measurement):
    former = json.loads(SPECIMEN.read_text())
    document = json.loads(measurement.to_json())
    added = [(accused.pop("probability"), accused.pop("where")) for accused in document["accused"]]
    for expected in (scope["expected"] for scope in document["scopes"]):
        expected["terms"] = [term for term in expected["terms"] if term["name"] != "channels"]
    assert {key: value for key, value in document.items() if key in former} == former
    assert document.keys() - former.keys() == {"excluded", "figures", "fleet", "counters", "unread_counters"}
    assert added == [(None, "between nodes")] * len(former["accused"])


def test_what_the_fleet_has_in_common_fails_without_blaming_a_part(measurement):
    cause = CommonCause("socket", "between nodes", NAMES, 4, 4.8, 48.0, ("NET/Socket : Using eth0",))
    common = replace(measurement, blame=Blame(fleet=(cause,)), excluded={})
    assert common.conclusion() == "failed"
    text = render(common)
    assert f"FLEET  between nodes, {len(NAMES)} of 4 nodes" in text
    assert "TCP instead of RDMA, 4.8 of 48 GB/s" in text
    assert "no part is blamed" not in text
    (saved,) = json.loads(common.to_json())["fleet"]
    assert (saved["kind"], saved["nodes"], saved["tested"]) == ("socket", list(NAMES), 4)


def test_the_document_says_why_a_host_is_excluded_as_words_and_as_a_kind(measurement):
    document = measurement.to_document()
    assert document["left"] == {node: reason.why for node, reason in EXCLUDED.items()}
    assert document["excluded"] == {
        "gpu002": {"kind": "unreachable", "why": "refused", "unreachable": "refused"},
        "gpu003": {"kind": "unhealthy", "why": "fails gpu-lost", "checks": ["gpu-lost"]},
        "gpu004": {"kind": "defective", "why": "clocks: 7 s behind", "do": "set it"},
    }


def test_the_document_has_no_secrets(measurement):
    word = Secret("the password of test_measurement").reveal()
    blame = Blame((replace(SLOW, evidence=(word,)),), unclear=(word,))
    excluded = {"gpu002": Excluded("gpu002", "defective", word, do=word)}
    settings = {"gpu000": (word,)}
    text = replace(measurement, blame=blame, engine_why=word, excluded=excluded, settings=settings).to_json()
    assert word not in text
    assert text.count(MASK) == 7


OK = Measurement(Evidence(FABRIC), Blame(), "nccl")
GONE = {"gpu002": Excluded("gpu002", "busy", "busy (alice)")}
FAILURE = NetworkFailure("mtu", ("gpu000",), "its MTU is 1500", "raise it")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"excluded": GONE}, 3),
        ({"blame": Blame(unclear=("x",))}, 3),
        ({"blame": Blame(suspects=("x",))}, 3),
        ({"blame": Blame(contention=("x",))}, 0),
        ({"blame": Blame((SLOW,)), "excluded": GONE}, 1),
        ({"failures": (FAILURE,), "excluded": GONE}, 1),
        ({"blame": Blame((SLOW,)), "interrupted": True}, 130),
    ],
)
def test_what_is_at_fault_weighs_more_than_what_is_unknown(changes, code):
    assert EXIT_CODES[replace(OK, **changes).conclusion()] == code


def test_settings_that_most_nodes_have_come_first(measurement):
    assert measurement.nodes_by_setting == {"NCCL 2.28.9": ["gpu000", "gpu001"], "memlock unlimited": ["gpu000"]}
    assert measurement.rounds == 3
