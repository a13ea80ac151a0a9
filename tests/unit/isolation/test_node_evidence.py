import dataclasses
import datetime as dt
import json
import pathlib
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.facts import Facts, load_folder
from gpuops.isolation import blame, next_round
from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.node_evidence import all_reduce, evidence_of, excluded_answer, node_evidence_of, to_answers
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.probing import Unknown
from gpuops.reasons import ON_PURPOSE, Excluded, ExclusionKind

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
NAMES = ("a", "b", "c")
FABRIC = Fabric(
    {n: FabricNode(n, (0, 1), (FabricNic("mlx5_0", 0, 50.0, "L0"), FabricNic("mlx5_1", 1, 50.0))) for n in NAMES}
)


def measured(scope, *figures, **counters):
    return Measured(Round(scope, tuple(f.group for f in figures), "why"), figures, counters)


EVIDENCE = Evidence(
    FABRIC,
    (
        measured("node", *(GroupResult(RankGroup((n,)), 470.0) for n in NAMES)),
        measured(
            "rail", GroupResult(RankGroup(("b", "c"), 0), 31.0, spread=0.02), **{"c:mlx5_0": {"symbol_error": 412}}
        ),
        measured("rail", GroupResult(RankGroup(("a", "c"), 1), None, "hang", ("c",), detail="no answer")),
        measured("pair", GroupResult(RankGroup(("a", "b"), gpus=(0,), variant="ring"), 48.0)),
    ),
    {RankGroup(("b", "c"), 0): 48.0},
    ("node", "rail"),
)
SETTINGS = {"a": ("through eth0", "memlock unlimited"), "b": ("through eth1",)}


def read(evidence):
    return {name: all_reduce.read(answer) for name, answer in to_answers(evidence, "tcp", SETTINGS).items()}


def compared(evidence):
    return evidence.fabric.nodes, evidence.rounds, evidence.expected, evidence.scopes


def test_the_shares_of_all_nodes_give_the_whole_evidence_back():
    assert compared(evidence_of(read(EVIDENCE))) == compared(EVIDENCE)


def test_the_link_layer_of_nics_is_saved_and_unknown_in_older_files():
    nics = (FabricNic("mlx5_0", 0, 50.0, "L0", "Ethernet"),)
    fabric = Fabric({"a": FabricNode("a", (0,), nics)})
    node_round = measured("node", GroupResult(RankGroup(("a",)), 470.0))
    answers = to_answers(Evidence(fabric, (node_round,)), "tcp", {})
    assert all_reduce.read(answers["a"]).node.nics == nics
    older = json.loads(answers["a"].out)
    for nic in older["node"]["nics"]:
        del nic["link_layer"]
    read_again = all_reduce.read(dataclasses.replace(answers["a"], out=json.dumps(older)))
    assert read_again.node.nics == (FabricNic("mlx5_0", 0, 50.0, "L0"),)


def test_each_share_says_how_its_own_node_was_measured():
    shares = read(EVIDENCE)
    assert {name: share.settings for name, share in shares.items()} == {**SETTINGS, "c": ()}


def test_a_figure_is_saved_once():
    texts = "".join(answer.out for answer in to_answers(EVIDENCE, "tcp", {}).values())
    assert texts.count('"gb_per_s":31.0') == 1


def test_without_a_nodes_share_nothing_is_said_of_it():
    shares = read(EVIDENCE)
    del shares["c"]
    left = evidence_of(shares)
    assert compared(left) == compared(dataclasses.replace(EVIDENCE, expected=left.expected).without({"c"}))
    assert "c" not in left.fabric.nodes


def test_a_node_that_took_no_part_is_unknown():
    fabric = Fabric({**FABRIC.nodes, "d": FabricNode("d", (0,), ())})
    assert isinstance(read(dataclasses.replace(EVIDENCE, fabric=fabric))["d"], Unknown)


def facts_with(answer):
    return Facts("a", NOW, {}).with_answer(answer, all_reduce)


@pytest.mark.parametrize("kind", get_args(ExclusionKind))
def test_excluded_node_is_saved_with_kind_why_and_what_to_do(kind):
    reason = Excluded("a", kind, "a sentence", checks=("gpu-lost",), do="do it")
    answer = excluded_answer(reason)
    saved = json.loads(answer.out)["excluded"]
    assert (answer.exit, saved["kind"], saved["why"], saved["do"]) == (0, kind, "a sentence", "do it")
    assert node_evidence_of({"a": facts_with(answer)}) == ({}, {"a": reason})


@pytest.mark.parametrize("kind", sorted(set(get_args(ExclusionKind)) - {"defective", "lost"}))
def test_excluded_node_is_unknown_and_left_alone_by_its_kind(kind):
    value = all_reduce.read(excluded_answer(Excluded("a", kind, "fails to say more")))
    assert isinstance(value, Unknown)
    assert (value.why, value.skipped_on_purpose) == ("fails to say more", kind in ON_PURPOSE)


@pytest.mark.parametrize("kind", ["defective", "lost"])
def test_node_at_fault_is_read_with_what_to_do(kind):
    reason = Excluded("a", kind, "its clock is late", do="set it")
    assert all_reduce.read(excluded_answer(reason)) == reason


def test_kind_of_a_newer_version_is_unknown():
    answer = excluded_answer(Excluded("a", "busy", "why"))
    newer = dataclasses.replace(answer, out=answer.out.replace('"busy"', '"on-fire"'))
    assert node_evidence_of({"a": facts_with(newer)})[1] == {"a": Excluded("a", "unknown", "why")}


SPECIMENS = pathlib.Path(__file__).parents[2] / "specimens" / "measured"


def test_files_from_before_exclusions_had_a_kind_are_read_as_then():
    facts = {read.node: read for read in load_folder(SPECIMENS, [all_reduce])}
    busy, no_library = facts["gpu03"][all_reduce], facts["gpu04"][all_reduce]
    assert busy == Unknown("skipped: busy (pid 4711 python, user alice)", skipped_on_purpose=True)
    assert isinstance(no_library, Unknown)
    assert not no_library.skipped_on_purpose
    assert facts["gpu05"][all_reduce] == Excluded(
        "gpu05",
        "defective",
        "clocks: its clock is 7 s behind the others'",
        do="chronyc makestep; then find why nothing keeps it",
    )
    measured, excluded = node_evidence_of(facts)
    assert [figure.gb_per_s for m in evidence_of(measured).rounds for figure in m.figures] == [470.0, 470.0, 48.0]
    assert {node: reason.kind for node, reason in excluded.items()} == {
        "gpu03": "unknown",
        "gpu04": "unknown",
        "gpu05": "defective",
    }


@given(st.data())
def test_a_damaged_share_is_unknown_or_says_the_same(data):
    whole = to_answers(EVIDENCE, "tcp", {})["a"]
    cut = data.draw(st.integers(0, len(whole.out) - 1))
    assert isinstance(all_reduce.read(dataclasses.replace(whole, out=whole.out[:cut])), Unknown)


@pytest.mark.parametrize("out", ["", "{}", "[]", "null", '{"schema": 3}'])
def test_what_is_no_share_is_unknown(out):
    assert isinstance(all_reduce.read(dataclasses.replace(to_answers(EVIDENCE, "tcp", {})["a"], out=out)), Unknown)


def test_a_round_that_was_repeated_is_read_back_as_often_and_judged_alike():
    fabric = Fabric({f"n{k}": FabricNode(f"n{k}", tuple(range(8)), ()) for k in range(6)})

    def rate(group, number):
        return 335.0 if group.nodes == ("n3",) and number % 2 == 0 and (not group.gpus or 5 in group.gpus) else 478.0

    evidence = Evidence(fabric, scopes=("node",))
    while (planned := next_round(evidence)) is not None:
        number = len(evidence.rounds)
        figures = tuple(GroupResult(group, rate(group, number)) for group in planned.groups)
        evidence = dataclasses.replace(evidence, rounds=(*evidence.rounds, Measured(planned, figures)))
    assert [measured.round for measured in evidence.rounds][:3] == [evidence.rounds[0].round] * 3
    again = evidence_of(read(evidence))
    assert len(again.rounds) == len(evidence.rounds)
    assert blame(again) == blame(evidence)
    assert [found.part for found in blame(again).blamed] == ["n3:gpu5"]
