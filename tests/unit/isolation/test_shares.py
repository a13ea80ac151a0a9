import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.isolation.evidence import Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNic, FabricNode
from gpuops.isolation.node_evidence import Unfit, all_reduce, evidence_of, left_out, to_answers, unfit
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.probing import Unknown

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


@pytest.mark.parametrize("spared", [True, False])
def test_a_node_that_was_left_out_says_why(spared):
    answer = left_out("a", "busy (pid 4711 python)", spared=spared)
    assert all_reduce.read(answer) == Unknown("busy (pid 4711 python)", skipped_on_purpose=spared)


def test_a_node_that_is_unfit_is_told_with_its_remedy():
    assert all_reduce.read(unfit("a", Unfit("its clock is late", "set it"))) == Unfit("its clock is late", "set it")


@given(st.data())
def test_a_damaged_share_is_unknown_or_says_the_same(data):
    whole = to_answers(EVIDENCE, "tcp", {})["a"]
    cut = data.draw(st.integers(0, len(whole.out) - 1))
    assert isinstance(all_reduce.read(dataclasses.replace(whole, out=whole.out[:cut])), Unknown)


@pytest.mark.parametrize("out", ["", "{}", "[]", "null", '{"schema": 3}'])
def test_what_is_no_share_is_unknown(out):
    assert isinstance(all_reduce.read(dataclasses.replace(to_answers(EVIDENCE, "tcp", {})["a"], out=out)), Unknown)
