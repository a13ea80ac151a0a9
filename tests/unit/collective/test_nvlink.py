import ast
import dataclasses
import importlib.resources
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuops.collective import nvlink
from gpuops.collective.measurement import Measurement
from gpuops.collective.nvlink import Model, NvlinkComparison, NvlinkGain, Training
from gpuops.collective.session import Snapshot
from gpuops.isolation.cabling import Cabling, build_fabric
from gpuops.isolation.evidence import Blame, BlamedPart, Evidence, Measured
from gpuops.isolation.fabric import Fabric, FabricNode
from gpuops.isolation.rounds import GroupResult, RankGroup, Round
from gpuops.isolation.simulation import NO_P2P_GB_PER_S, NVLS_GB_PER_S, Simulation
from gpuops.probing import Unknown
from gpuops.reasons import Excluded
from gpuops.shell import Command, Completed

SOURCE = importlib.resources.files("gpuops").joinpath("node", "training.py")
SECONDS = {"ddp": 101, "ddp-no-p2p": 131}
ROW = {"row": "ddp", "seconds": 101.9, "samples_per_second": 7.9, "gpus": 2, "weights": 1, "alike": True, "torch": "2"}


def measured(engine, fabric):
    evidence = Evidence(fabric)
    while (planned := nvlink.next_round(evidence)) is not None:
        rounds = (*evidence.rounds, Measured(planned, engine.measure(planned)))
        evidence = dataclasses.replace(evidence, rounds=rounds)
    return evidence


def test_every_node_is_measured_with_nvlink_and_without():
    fabric = build_fabric(Cabling(3, 8, unit=3))
    evidence = measured(Simulation(fabric), fabric)
    assert len(evidence.rounds) == 2
    gains = nvlink.gains_of(evidence)
    assert set(gains) == set(fabric.nodes)
    for gain in gains.values():
        assert gain.time_saved == pytest.approx(1 - NO_P2P_GB_PER_S / NVLS_GB_PER_S, rel=0.02)


def test_the_guides_titans_saved_23_percent():
    assert NvlinkGain("titan", 131, 101).time_saved == pytest.approx(0.229, abs=0.001)
    rows = [Training(row, seconds, 8, 2, 1, alike=True, torch="1.8") for row, seconds in SECONDS.items()]
    assert nvlink.time_saved(rows) == pytest.approx(0.229, abs=0.001)
    assert nvlink.time_saved(rows[:1]) is None


def test_a_node_without_a_second_gpu_is_not_measured():
    alone = Fabric({"n0": FabricNode("n0", (0,), ())})
    assert nvlink.next_round(Evidence(alone)) is None
    assert nvlink.gains_of(Evidence(alone)) == {"n0": Unknown("not measured with NVLink: one GPU")}


def test_a_figure_in_trouble_shows_no_gain():
    fabric = build_fabric(Cabling(1, 2, unit=1, leaves=1))
    figures = (
        GroupResult(RankGroup(("gpu000",)), 100.0),
        GroupResult(RankGroup(("gpu000",), variant="no-p2p"), None, "hang"),
    )
    evidence = Evidence(fabric, tuple(Measured(Round("node", (f.group,)), (f,)) for f in figures))
    assert nvlink.gains_of(evidence)["gpu000"] == Unknown("not measured without NVLink: hang")


def answer(out="", **fields):
    return Completed("n1", Command(("python3", "-")), fields.pop("exit", 0), out, **fields)


def test_a_row_is_read():
    said = "some banner\n" + json.dumps(ROW) + "\n"
    assert nvlink.parse_training(answer(said)) == Training("ddp", 101.9, 7.9, 2, 1, alike=True, torch="2")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (answer(json.dumps({"row": "dp", "error": "DataParallel needs GPUs"})), "DataParallel needs GPUs"),
        (answer('{"error": "rank 1: a bug"}\nnoise\n{"error": "rank 0: it is gone"}\n', exit=1), "rank 1: a bug"),
        (answer(timed_out=True, seconds=600.0), "not finished within 600 s"),
        (answer(exit=127), "python3 is not installed"),
        (answer("", exit=1, err="Traceback:\nboom"), "cannot parse its output: boom"),
        (answer(json.dumps(ROW)[:40]), "cannot parse its output"),
        (answer(json.dumps({**ROW, "seconds": 0})), "cannot parse its output"),
        (answer(json.dumps({**ROW, "row": "fsdp"})), "cannot parse its output"),
        (answer("[1]"), "cannot parse its output"),
    ],
)
def test_what_cannot_be_read_is_unknown(given, why):
    found = nvlink.parse_training(given)
    assert isinstance(found, Unknown)
    assert why in found.why


@given(st.text())
def test_any_text_is_read_or_unknown(text):
    assert isinstance(nvlink.parse_training(answer(text)), Unknown)


def test_the_script_is_written_in_the_grammar_of_python_3_6():
    ast.parse(SOURCE.read_text(), feature_version=(3, 6))


class Nodes:
    """A pool of nodes that train as fast as it is told; it notes what was run where."""

    def __init__(self, **seconds):
        self.hosts = dict.fromkeys(seconds)
        self.excluded = {}
        self.seconds = seconds
        self.ran = []

    def exclude(self, excluded):
        for reason in excluded:
            self.excluded[reason.host] = reason
            self.hosts.pop(reason.host, None)

    def ask(self, questions):
        (command,) = questions
        self.ran += [(name, command.words[2]) for name in self.hosts]
        told = {**ROW, "row": command.words[2]}
        return {n: [answer(json.dumps({**told, "seconds": self.seconds[n]}))] for n in self.hosts}


def test_all_rows_are_trained_on_all_idle_nodes():
    pool = Nodes(n1=10.0, n2=20.0)
    found = nvlink.train(pool, lambda _names: Snapshot(), "python3", Model(), 60)
    assert {name: {row: each.seconds for row, each in rows.items()} for name, rows in found.items()} == {
        "n1": {"dp": 10.0, "ddp": 10.0, "ddp-no-p2p": 10.0},
        "n2": {"dp": 20.0, "ddp": 20.0, "ddp-no-p2p": 20.0},
    }


def test_nothing_is_run_on_a_node_that_is_busy_by_then():
    pool = Nodes(n1=10.0, n2=20.0)
    looks = iter([Snapshot(), Snapshot(), Snapshot({"n2": Excluded("n2", "busy", "busy (pid 7 python, user alice)")})])
    found = nvlink.train(pool, lambda _names: next(looks), "python3", Model(), 60)
    assert pool.ran == [("n1", "dp"), ("n2", "dp"), ("n1", "ddp"), ("n2", "ddp"), ("n1", "ddp-no-p2p")]
    assert found["n2"]["ddp-no-p2p"] == Unknown("busy (pid 7 python, user alice)")
    assert isinstance(found["n2"]["ddp"], Training)


GAINS = {"titan": NvlinkGain("titan", 47.25, 9.5), "gpu01": Unknown("not measured without NVLink: hang")}
ROWS = {"titan": {"ddp": Training("ddp", 101.0, 15.8, 2, 124_439_808, alike=True, torch="2.13.0"), "dp": Unknown("no")}}


def comparison(**more):
    return NvlinkComparison(Measurement(Evidence(Fabric({})), Blame(), "nccl", **more), GAINS, ROWS)


def test_the_document_has_every_figure_and_the_reasons_of_the_others():
    excluded = {"gpu02": Excluded("gpu02", "busy", "skipped: busy (alice)")}
    document = json.loads(comparison(excluded=excluded).to_json())
    assert document["schema"] == "gpuops.nvlink/1"
    titan = document["all_reduce"]["titan"]
    assert (titan["with_gb_per_s"], titan["without_gb_per_s"]) == (47.25, 9.5)
    assert titan["time_saved"] == titan["saved"] == pytest.approx(0.799, abs=0.001)
    assert document["all_reduce"]["gpu01"] == {"unknown": "not measured without NVLink: hang"}
    assert document["training"]["titan"]["ddp"]["seconds"] == 101.0
    assert document["training"]["titan"]["dp"] == {"unknown": "no"}
    assert document["excluded"] == {"gpu02": {"kind": "busy", "why": "skipped: busy (alice)"}}
    assert document["interrupted"] is False


def test_a_comparison_is_incomplete_if_a_node_is_missing_and_finds_no_fault():
    assert comparison().conclusion() == "ok"
    blaming = dataclasses.replace(comparison().measurement, blame=Blame((BlamedPart("titan", "slow"),)))
    assert dataclasses.replace(comparison(), measurement=blaming).conclusion() == "ok"
    gone = {"gpu02": Excluded("gpu02", "lost", "gone")}
    assert comparison(excluded=gone).conclusion() == "incomplete"
    assert comparison(excluded=gone, interrupted=True).conclusion() == "interrupted"
