from types import SimpleNamespace

import pytest

from gpuops.collective.idleness.proof import Idleness
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.diagnosis import Diagnosis, Preflight, PreflightStep
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.reasons import Excluded

GROUP = RankGroup(("n1", "n2"))


@pytest.fixture
def last_step():
    """The last step of a preflight whose earlier ones went well: the all-reduce, and what it found."""

    def run(figure=None, busy=(), excluded=()):
        pool = SimpleNamespace(hosts={"n1": None, "n2": None}, excluded=dict(excluded))
        found = {n: Idleness(n, "busy" if n in busy else "idle", "pid 7 python") for n in pool.hosts}
        watch = SimpleNamespace(prove=lambda: found)
        preflight = Preflight(LaunchCommand("srun", "x"), pool, watch, lambda _pool: (figure, "tcp"))
        preflight._all_reduce()
        return preflight.report

    return run


def test_a_figure_is_told_and_judges_nobody(last_step):
    report = last_step(GroupResult(GROUP, 0.02))
    assert report.steps == [PreflightStep("all-reduce", "ok", "0.0 GB/s over 2 nodes by tcp")]
    assert report.exit_code == 0


def test_a_hang_is_told_with_who_did_not_arrive(last_step):
    report = last_step(GroupResult(GROUP, None, "hang", ("n2",), detail="n2: no answer"))
    assert report.causes == [
        Cause("all-reduce", ("n2",), "hang by tcp: n2: no answer", "gpuops allreduce names the part")
    ]
    assert report.exit_code == 1


def test_an_engine_that_cannot_measure_this_accuses_nobody(last_step):
    report = last_step(GroupResult(GROUP, None, detail="tcp measures between nodes only"))
    assert report.steps == [PreflightStep("all-reduce", "skipped", "tcp measures between nodes only")]
    assert report.exit_code == 0


def test_nothing_is_put_on_nodes_where_somebody_computes(last_step):
    report = last_step(busy={"n2"})
    assert [step.name for step in report.steps] == ["idle", "all-reduce"]
    assert report.steps[1].state == "skipped"
    assert report.causes[0].nodes == ("n2",)
    assert "pid 7 python" in report.causes[0].why


def test_nothing_is_measured_without_all_nodes_of_the_job(last_step):
    assert last_step(excluded={"n3": Excluded("n3", "lost", "gone")}).steps[0].state == "skipped"


def test_what_several_nodes_have_in_common_is_told_once():
    report = Diagnosis()
    report.add("x", [Cause("x", ("a",), "w", "c"), Cause("x", ("b",), "other", "c"), Cause("x", ("c", "a"), "w", "c")])
    assert report.causes == [Cause("x", ("a", "c"), "w", "c"), Cause("x", ("b",), "other", "c")]
    assert report.steps == [PreflightStep("x", "fail", "w")]


def test_only_a_node_that_does_not_answer_is_3_and_any_other_cause_is_1():
    report = Diagnosis()
    report.add("reach", [Cause("reach", ("a",), "refused", "")])
    assert report.exit_code == 3
    report.add("gid", [Cause("gid", ("a",), "w", "")])
    assert report.exit_code == 1
