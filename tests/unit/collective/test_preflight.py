import json
from types import SimpleNamespace

import pytest

from gpuops.collective.idleness.proof import Idleness
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.diagnosis import Diagnosis, Preflight, PreflightStep, StepLog
from gpuops.collective.preflight.launch_command import LaunchCommand
from gpuops.errors import CancelledError, ConnectError
from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.reasons import EXIT_CODES, Excluded
from gpuops.secret import MASK, Secret

COMMAND = LaunchCommand("srun", "x")
GROUP = RankGroup(("n1", "n2"))


@pytest.fixture
def last_step():
    """The last step of a preflight whose earlier ones went well: the all-reduce, and what it found."""

    def run(figure=None, busy=(), excluded=()):
        pool = SimpleNamespace(hosts={"n1": None, "n2": None}, excluded=dict(excluded))
        idleness = {n: Idleness(n, "busy" if n in busy else "idle", "pid 7 python") for n in pool.hosts}
        monitor = SimpleNamespace(prove=lambda: idleness)
        preflight = Preflight(COMMAND, pool, monitor, lambda _pool: (figure, "tcp"))
        preflight._run_steps = preflight._all_reduce
        return preflight.run()

    return run


def test_a_figure_is_told_and_judges_nobody(last_step):
    report = last_step(GroupResult(GROUP, 0.02))
    assert report.steps == (PreflightStep("all-reduce", "ok", "0.0 GB/s over 2 nodes by tcp"),)
    assert (report.hosts, report.conclusion()) == (("n1", "n2"), "ok")


def test_a_hang_is_told_with_who_did_not_arrive(last_step):
    report = last_step(GroupResult(GROUP, None, "hang", ("n2",), detail="n2: no answer"))
    assert report.causes == (
        Cause("all-reduce", ("n2",), "hang by tcp: n2: no answer", "to find the part: gpuops allreduce"),
    )
    assert report.conclusion() == "failed"


def test_an_engine_that_cannot_measure_this_accuses_nobody(last_step):
    report = last_step(GroupResult(GROUP, None, detail="tcp measures between nodes only"))
    assert report.steps == (PreflightStep("all-reduce", "skipped", "tcp measures between nodes only"),)
    assert report.conclusion() == "ok"


def test_nothing_is_put_on_nodes_where_somebody_computes(last_step):
    report = last_step(busy={"n2"})
    assert [step.name for step in report.steps] == ["idle", "all-reduce"]
    assert report.steps[1].state == "skipped"
    assert report.causes[0].nodes == ("n2",)
    assert "pid 7 python" in report.causes[0].why
    assert report.excluded == {"n2": Excluded("n2", "busy", "busy (pid 7 python)")}
    assert report.conclusion() == "failed"


def test_nothing_is_measured_without_all_nodes_of_the_job(last_step):
    gone = {"n3": Excluded("n3", "lost", "gone")}
    report = last_step(excluded=gone)
    assert report.steps[0].state == "skipped"
    assert report.excluded == gone


def test_node_that_is_lost_while_it_is_proved_idle_is_a_cause_and_nothing_is_measured():
    pool = SimpleNamespace(hosts={"n1": None, "n2": None}, excluded={})

    def prove():
        pool.excluded["n2"] = Excluded("n2", "unreachable", "hung up")
        return {"n1": Idleness("n1", "idle")}

    preflight = Preflight(COMMAND, pool, SimpleNamespace(prove=prove), pytest.fail)
    preflight._run_steps = preflight._all_reduce
    diagnosis = preflight.run()
    assert diagnosis.causes == (
        Cause("reach", ("n2",), "hung up", "bring these nodes back, or take them out of the job"),
    )
    assert diagnosis.conclusion() == "incomplete"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CancelledError("interrupted")])
def test_ctrl_c_keeps_what_was_found_until_then(error):
    def steps():
        preflight.log.add("gid", [Cause("gid", ("n1",), "w", "c")])
        raise error

    preflight = Preflight(COMMAND, SimpleNamespace(hosts={"n1": None}, excluded={}), None, pytest.fail)
    preflight._run_steps = steps
    diagnosis = preflight.run()
    assert (diagnosis.conclusion(), [cause.test for cause in diagnosis.causes]) == ("interrupted", ["gid"])


def test_what_several_nodes_have_in_common_is_told_once():
    log = StepLog()
    log.add("x", [Cause("x", ("a",), "w", "c"), Cause("x", ("b",), "other", "c"), Cause("x", ("c", "a"), "w", "c")])
    assert log.causes == [Cause("x", ("a", "c"), "w", "c"), Cause("x", ("b",), "other", "c")]
    assert log.steps == [PreflightStep("x", "fail", "w")]


def test_only_a_node_that_does_not_answer_is_3_and_any_other_cause_is_1():
    log = StepLog()
    log.add("reach", [Cause("reach", ("a",), "refused", "")])
    assert EXIT_CODES[log.diagnosis(COMMAND, ["a"]).conclusion()] == 3
    log.add("gid", [Cause("gid", ("a",), "w", "")])
    assert EXIT_CODES[log.diagnosis(COMMAND, ["a"]).conclusion()] == 1


def test_the_document_has_new_and_former_names_and_no_secrets():
    hidden = Secret("the password of test_preflight")
    cause = Cause("gid", ("a",), hidden.reveal(), "fix it")
    step = PreflightStep("gid", "fail", hidden.reveal())
    excluded = {"b": Excluded("b", "unreachable", "refused", ConnectError("b", "refused", "refused"))}
    diagnosis = Diagnosis(COMMAND, ("a", "b"), (step,), (cause,), excluded)
    document = json.loads(diagnosis.to_json())
    assert (document["schema"], document["launcher"], document["hosts"]) == ("gpuops.preflight/1", "srun", ["a", "b"])
    assert document["steps"] == [{"name": "gid", "state": "fail", "detail": MASK, "said": MASK}]
    (told,) = document["causes"]
    assert (told["test"], told["rung"], told["fix"], told["change"]) == ("gid", "gid", "fix it", "fix it")
    assert told["why"] == MASK
    assert document["excluded"] == {"b": {"kind": "unreachable", "why": "refused", "unreachable": "refused"}}
