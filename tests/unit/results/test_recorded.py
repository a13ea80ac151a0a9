"""What the store keeps of each kind of result."""

import datetime as dt
from dataclasses import replace

import pytest
from tests.unit.cli.test_schemas import RECORD

from gpuops.collective.measurement import Measurement
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.diagnosis import Diagnosis
from gpuops.collective.preflight.launch_command import read_command
from gpuops.errors import AbandonedError, CancelledError, NodeError
from gpuops.facts import Facts
from gpuops.inventory import Host
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Measured, Sentence
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.judging import Finding, Verdict
from gpuops.judging.common import Place, shared_silence
from gpuops.profile import NO_PROFILE
from gpuops.reasons import Excluded, Objection, excluded_by
from gpuops.results import recorded
from gpuops.results.health import Run, build
from gpuops.results.life import NodeOnboarding, Onboarding
from gpuops.results.recorded import record
from gpuops.results.repair import Repair
from gpuops.store import Runs
from gpuops.store.records import FLEET, RunRecord, SeenPart

BEGAN = dt.datetime(2026, 11, 1, tzinfo=dt.timezone.utc)
RUN = RunRecord("", BEGAN, 1.0, "ok", "alice")
ASKED = Run("0.1.0", BEGAN, "prod.yml", "quick", 1.0)


def test_a_fix_keeps_the_verdicts_after_it_and_why_others_were_left():
    found = Finding("Xid 79", part="gpu3", severity="isolate", host="n1")
    verdicts = (Verdict("xid", "n1", "fail", (found,)), Verdict("xid", "n2", "pass"))
    blocked = {"n3": Objection("it takes jobs")}
    kept = record(Repair("xid", RECORD, RECORD, verdicts, blocked), RUN, {})
    assert (kept.verb, kept.level) == ("fix", "xid")
    assert {node: (visit.status, visit.checks, visit.why) for node, visit in kept.nodes.items()} == {
        "n1": ("fail", {"xid": "fail"}, ""),
        "n2": ("pass", {"xid": "pass"}, ""),
        "n3": ("skipped", {}, "it takes jobs"),
    }
    (finding,) = kept.nodes["n1"].findings
    assert finding.key == ("n1", found.check, "gpu3", "")


def test_a_fix_that_was_only_shown_is_no_run_and_one_that_failed_has_its_nodes():
    assert record(Repair("xid", RECORD), RUN, {}) is None
    assert record(Repair("xid", RECORD, blocked={"n1": Objection("it takes jobs")}), RUN, {}) is None
    failed = record(Repair("xid", RECORD, RECORD), RUN, {})
    assert {node: visit.status for node, visit in failed.nodes.items()} == {"n1": "unknown"}
    assert record(Repair("xid", RECORD, excluded={"n2": Excluded("n2", "lost", "gone")}), RUN, {}).nodes.keys() == {
        "n2"
    }


def test_a_preflight_keeps_the_first_cause_of_each_node():
    command = read_command(("torchrun", "--nnodes=3", "--nproc-per-node=8", "train.py"), None, {})
    causes = (Cause("rendezvous", ("n1",), "no route", "open it"), Cause("gpus", ("n1", "n2"), "7 of 8", "fix it"))
    kept = record(Diagnosis(command, ("n1", "n2", "n3"), causes=causes), RUN, {})
    told = {node: (visit.status, visit.why) for node, visit in kept.nodes.items()}
    assert told == {"n1": ("fail", "rendezvous: no route"), "n2": ("fail", "gpus: 7 of 8"), "n3": ("pass", "")}


def test_onboarding_keeps_where_each_node_stopped():
    stopped = NodeOnboarding((), "pair", Objection("slow", excluded=Excluded("n1", "lost", "gone")), "burned_in")
    kept = record(Onboarding({"n1": stopped, "n2": NodeOnboarding((), None, None, "admitted")}), RUN, {})
    told = {node: (visit.status, visit.why) for node, visit in kept.nodes.items()}
    assert told == {"n1": ("fail", "stopped at pair: slow"), "n2": ("pass", "")}


def test_a_rack_that_did_not_answer_is_gone_once_its_nodes_answer(tmp_path):
    nodes = ("n1", "n2", "n3")
    silence = shared_silence(nodes, {name: Place() for name in nodes})
    silent = build(ASKED, {name: Excluded(name, "unreachable", "timed out") for name in nodes}, silence)
    back = build(ASKED, dict.fromkeys(nodes, NO_PROFILE), [Verdict("clock", name, "pass") for name in nodes])
    with Runs(tmp_path / "state.db") as runs:
        changes = [runs.save(record(report, RUN, {}))[1] for report in (silent, silent, back)]
    assert [each.key.check for each in changes[0].new] == ["reach"]
    assert [len(each.gone) for each in changes] == [0, 0, 1]


NIC = "gpu001:mlx5_1"


@pytest.mark.parametrize(
    ("blame", "result"),
    [
        (Blame(), "pass"),
        (Blame(suspects=(NIC,)), "unknown"),
        (Blame(unclear=(Sentence(f"{NIC} or leaf:L1: slow", (NIC, "leaf:L1"), "slow"),)), "unknown"),
        (Blame((BlamedPart("leaf:L1", "slow", alternatives=(NIC,)),)), "unknown"),
        (Blame((BlamedPart(NIC, "slow"),)), "fail"),
    ],
    ids=["healthy", "suspect", "unclear", "one-of-two", "blamed"],
)
def test_a_measurement_that_leaves_a_node_open_does_not_clear_it(blame, result):
    fabric = build_fabric(Cabling(2, 2, unit=2, leaves=2))
    rounds = (Round("node", tuple(RankGroup((name,)) for name in fabric.nodes)),)
    measured = tuple(Measured(each, tuple(GroupResult(group, 478.0) for group in each.groups)) for each in rounds)
    kept = record(Measurement(Evidence(fabric, measured), blame, "nccl"), RUN, {})
    assert kept.nodes["gpu001"].checks == {"all-reduce-bandwidth": result}
    assert kept.nodes["gpu000"].checks == {"all-reduce-bandwidth": "pass"}


@pytest.mark.parametrize(
    ("scope", "part", "severity", "is_kept"),
    [
        ("rack", "gpu1", "fail", True),
        ("rack", "clock", "fail", True),
        ("fleet", "gpu1", "reset", True),
        ("fleet", "gpu1", "fail", False),
        ("fleet", "clock", "reset", False),
    ],
)
def test_what_nodes_share_is_kept_on_each_unless_it_is_a_setting(scope, part, severity, is_kept, monkeypatch):
    found = Finding("pending", check="row-remap-pending", part=part, host="n1", severity=severity)
    common = Finding("pending", check="row-remap-pending", part=scope, hosts=("n1",), scope=scope)
    verdicts = [
        Verdict("row-remap-pending", "n1", "fail", shared=(found,)),
        Verdict("row-remap-pending", "", "fail", (common,)),
    ]
    monkeypatch.setattr(recorded, "parts_of", lambda _: (SeenPart("gpu", "gpu1", "165", "H100"),))
    report = replace(build(ASKED, {"n1": NO_PROFILE}, verdicts), facts={"n1": Facts("n1", BEGAN, {})})
    kept = record(report, RUN, {"n1": Host("n1", "n1", "prod.yml")})
    assert kept.nodes["n1"].checks["row-remap-pending"] == "shared fail"
    assert [each.key.part for each in kept.nodes["n1"].shared] == ([part] if is_kept else [])
    assert [each.key.part for each in kept.fleet] == [scope]


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (NodeError("n1", "connection refused", "refused"), {"reach": "fail"}),
        (AbandonedError("n1", "no answer within the run's 1 s"), {}),
        (CancelledError("interrupted before it answered"), {}),
    ],
)
def test_a_run_that_had_no_time_for_a_node_did_not_look_at_it(error, result):
    excluded = excluded_by("n1", error)
    assert excluded.is_silent == bool(result)
    kept = record(build(ASKED, {"n1": excluded}, []), RUN, {})
    assert kept.nodes["n1"].checks == result


def test_what_a_blamed_part_reached_is_kept_with_what_its_peers_did():
    fabric = build_fabric(Cabling(2, 2, unit=2, leaves=2))
    whole = (RankGroup(("gpu000",)), RankGroup(("gpu001",)))
    measured = (Measured(Round("node", whole), tuple(map(GroupResult, whole, (None, 478.0)))),)
    parts = (
        BlamedPart(NIC, "slow", 31.0, 48.0),
        BlamedPart("gpu001", "slow", 40.0, 48.0),
        BlamedPart("gpu001:mlx5_0", "slow", 0.0062, 0.0125),
        BlamedPart("gpu001:mlx5_1", "slow", 20.0, 48.0, alternatives=("leaf:L1",)),
        BlamedPart("gpu000:mlx5_0", "hang"),
        BlamedPart("gpu000", "slow", 300.0, 450.0, where="within nodes"),
    )
    kept = record(Measurement(Evidence(fabric, measured), Blame(parts), "nccl"), RUN, {})
    assert kept.nodes["gpu001"].figures == {
        "node.gb_per_s": 478.0,
        "mlx5_0.gb_per_s": 0.0062,
        "mlx5_0.expected_gb_per_s": 0.0125,
        "mlx5_1.gb_per_s": 31.0,
        "mlx5_1.expected_gb_per_s": 48.0,
        "rails.gb_per_s": 40.0,
        "rails.expected_gb_per_s": 48.0,
    }
    assert kept.nodes["gpu000"].figures == {"gpus.gb_per_s": 300.0, "gpus.expected_gb_per_s": 450.0}
    told = [finding.message for finding in kept.nodes["gpu001"].findings]
    assert "all-reduce: slow, 31 of 48 GB/s" in told
    assert "all-reduce: slow, 0.0062 of 0.0125 GB/s" in told


@pytest.mark.parametrize(
    ("names", "node", "part", "figures", "status"),
    [
        (("gpu001", NIC), "gpu001", "node", {"rails.gb_per_s": 24.0, "rails.expected_gb_per_s": 48.0}, "fail"),
        ((NIC, "gpu001"), "gpu001", "node", {"rails.gb_per_s": 24.0, "rails.expected_gb_per_s": 48.0}, "fail"),
        (
            ("gpu001:gpu1", NIC),
            "gpu001",
            "gpu1 or mlx5_1",
            {"gpu1 or mlx5_1.gb_per_s": 24.0, "gpu1 or mlx5_1.expected_gb_per_s": 48.0},
            "fail",
        ),
        ((NIC, "leaf:L1"), FLEET, f"{NIC} or leaf:L1", {}, "unknown"),
        (("gpu000:mlx5_1", NIC), FLEET, f"gpu000:mlx5_1 or {NIC}", {}, "unknown"),
        (("unit:U0/rail1", "unit:U1/rail1"), FLEET, "unit:U0/rail1 or unit:U1/rail1", {}, "pass"),
    ],
    ids=["node-or-nic", "nic-or-node", "two-parts", "nic-or-leaf", "two-nodes", "two-units"],
)
def test_one_of_several_parts_of_a_node_is_kept_as_of_this_node(names, node, part, figures, status):
    fabric = build_fabric(Cabling(2, 2, unit=2, leaves=2))
    pair = RankGroup(("gpu000", "gpu001"))
    measured = (Measured(Round("pair", (pair,)), (GroupResult(pair, 24.0),)),)
    blamed = BlamedPart(names[0], "slow", 24.0, 48.0, alternatives=names[1:])
    kept = record(Measurement(Evidence(fabric, measured), Blame((blamed,)), "nccl"), RUN, {})
    (finding,) = (*kept.fleet, *(each for visit in kept.nodes.values() for each in visit.findings))
    assert (finding.key.node, finding.key.part) == (node, part)
    assert kept.nodes["gpu001"].figures == figures
    assert kept.nodes["gpu000"].figures == {}
    assert kept.nodes["gpu001"].status == status


@pytest.mark.parametrize("result", [object(), "text", None])
def test_other_results_are_not_kept(result):
    assert record(result, RUN, {}) is None


@pytest.mark.parametrize(
    ("engine", "operation", "size_bytes", "level"),
    [
        ("nccl", "all_reduce", None, ""),
        ("nccl-tests", "all_reduce", None, ""),
        ("tcp", "all_reduce", None, "all_reduce of the usual payload by tcp"),
        ("nccl", "all_gather", None, "all_gather of the usual payload by nccl"),
        ("nccl", "all_reduce", 8, "all_reduce of 8 bytes by nccl"),
    ],
)
def test_what_nothing_else_compares_with_has_a_level(engine, operation, size_bytes, level):
    fabric = build_fabric(Cabling(2, 2, unit=2, leaves=2))
    evidence = Evidence(fabric, operation=operation, size_bytes=size_bytes)
    assert record(Measurement(evidence, Blame(), engine), RUN, {}).level == level
