import datetime as dt
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gpuops.collective.idleness.proof import Idleness
from gpuops.collective.network_tests.verdicts import NetworkFailure
from gpuops.collective.preflight.causes import Cause
from gpuops.collective.preflight.diagnosis import Diagnosis, PreflightStep, StepLog
from gpuops.collective.preflight.launch_command import LaunchCommand, NodeCommand
from gpuops.collective.preflight.preflight import Preflight
from gpuops.errors import CancelledError, ConnectError, LostError
from gpuops.facts import Facts
from gpuops.isolation.rounds import GroupResult, RankGroup
from gpuops.judging import Finding, Verdict
from gpuops.probing import PartName
from gpuops.reasons import EXIT_CODES, Excluded, excluded_by
from gpuops.report.page import Page
from gpuops.report.preflight import lines
from gpuops.secret import MASK, Secret
from gpuops.shell import Completed

COMMAND = LaunchCommand("srun", "x")
GROUP = RankGroup(("n1", "n2"))


@pytest.fixture
def last_step():
    """The last step of a preflight whose earlier ones went well: the all-reduce, and what it found."""

    def run(figure=None, busy=(), excluded=(), unproved=()):
        pool = SimpleNamespace(hosts={"n1": None, "n2": None}, excluded=dict(excluded))
        states = {**dict.fromkeys(busy, "busy"), **dict.fromkeys(unproved, "unproved")}
        idleness = {n: Idleness(n, states.get(n, "idle"), "pid 7 python") for n in pool.hosts}
        monitor = SimpleNamespace(prove=lambda: idleness)
        preflight = Preflight(COMMAND, pool, monitor, lambda _pool: (figure, "tcp"))
        preflight._run_steps = preflight._all_reduce
        return preflight.run()

    return run


def test_a_figure_is_told_and_judges_no_node(last_step):
    report = last_step(GroupResult(GROUP, 0.02))
    assert report.steps == (PreflightStep("all-reduce", "ok", "0.0 GB/s over 2 nodes by tcp"),)
    assert (report.hosts, report.conclusion()) == (("n1", "n2"), "ok")


def test_a_hang_is_told_with_who_did_not_arrive(last_step):
    report = last_step(GroupResult(GROUP, None, "hang", ("n2",), detail="n2: no answer"))
    assert report.causes == (
        Cause("all-reduce", ("n2",), "hang by tcp: n2: no answer", "to find the part: gpuops allreduce"),
    )
    assert report.conclusion() == "failed"


def test_an_engine_that_cannot_measure_this_blames_no_part(last_step):
    report = last_step(GroupResult(GROUP, None, detail="tcp measures between nodes only"))
    assert report.steps == (PreflightStep("all-reduce", "skipped", "tcp measures between nodes only"),)
    assert report.conclusion() == "ok"


def test_nothing_is_put_on_nodes_in_use(last_step):
    report = last_step(busy={"n2"})
    assert [step.name for step in report.steps] == ["idle", "all-reduce"]
    assert report.steps[1].state == "skipped"
    assert report.causes[0].nodes == ("n2",)
    assert "pid 7 python" in report.causes[0].why
    assert report.excluded == {"n2": Excluded("n2", "busy", "busy (pid 7 python)")}
    assert report.conclusion() == "failed"


def test_a_node_that_is_not_proved_idle_is_not_called_busy(last_step):
    report = last_step(unproved={"n2"})
    fix = "--force-busy n2   if you know that nothing runs there"
    assert report.causes == (Cause("idle", ("n2",), "not proved idle: pid 7 python", fix),)
    assert report.steps[1] == PreflightStep("all-reduce", "skipped", "not all nodes are proved idle")
    assert report.conclusion() == "incomplete"


def test_nodes_with_the_same_trouble_are_one_cause_with_all_their_names(last_step):
    report = last_step(unproved={"n1", "n2"}, busy=())
    fix = "--force-busy n1,n2   if you know that nothing runs there"
    assert report.causes == (Cause("idle", ("n1", "n2"), "not proved idle: pid 7 python", fix),)
    assert "busy" not in report.excluded["n1"].why
    (cause,) = last_step(busy={"n1", "n2"}).causes
    assert (cause.nodes, cause.fix) == (("n1", "n2"), "wait for it, or remove n[1-2] from the job")


def test_the_network_of_one_node_hides_no_lost_gpu_of_another():
    lost = Finding("fell off the bus", part=PartName("gpu5", "GPU 5"), host="n2", severity="isolate", fix="reseat it")
    pool = SimpleNamespace(hosts={"n1": None, "n2": None, "n3": None}, excluded={})
    idleness = {"n1": Idleness("n1", "idle"), "n2": Idleness("n2", "unproved", "GPU is lost")}
    command = LaunchCommand("torchrun", "torchrun", count=4, words=("torchrun", "--nnodes=4", "a.py"))
    preflight = Preflight(command, pool, SimpleNamespace(prove=lambda: idleness), pytest.fail)
    preflight.judge = lambda _facts: [Verdict("gpu-lost", "n2", "fail", (lost,))]

    def steps():
        preflight._check_gpus({})
        pool.excluded["n3"] = Excluded("n3", "defective", "tcp: it reaches nobody")
        del pool.hosts["n3"]
        preflight._account_for_all()
        preflight._all_reduce()

    preflight._run_steps = steps
    report = preflight.run()
    assert [(cause.test, cause.nodes) for cause in report.causes] == [
        ("hosts", ()),
        ("gpus", ("n2",)),
        ("reach", ("n3",)),
    ]
    check = "to check that: gpuops preflight --limit n1 -- torchrun --nnodes=1 a.py"
    assert report.causes[0].fix == f"--nnodes=1, and start it on n1 only; {check}"
    assert report.steps[-1] == PreflightStep("all-reduce", "skipped", "not on all nodes of the job")
    assert report.excluded["n2"] == Excluded("n2", "unhealthy", "fails gpu-lost", checks=("gpu-lost",))


def test_a_failure_that_does_not_prevent_the_start_is_named_and_one_port_has_one_fix():
    down = Finding("port 1 is Down", part=PartName("mlx5_3", "mlx5_3 port 1"), host="n2", fix="plug in the cable")
    failing = [
        Verdict("ib-ports", "n2", "fail", (down,)),
        Verdict("driver-agrees", "n1", "fail", (Finding("580", part="driver", host="n1", fix="install it"),)),
        Verdict("clock", "n1", "pass"),
    ]
    pool = SimpleNamespace(hosts={"n1": None, "n2": None}, excluded={})
    preflight = Preflight(COMMAND, pool, None, pytest.fail, judge=lambda _facts: failing, prevents={"x"}.__contains__)

    def steps():
        preflight._check_gpus({})
        failure = NetworkFailure("rdma", ("n2",), "mlx5_3 is Down", "compare ibstat", device="mlx5_3")
        other = replace(failure, why="mlx5_4 is Down", device="mlx5_4")
        preflight.log.add("rdma", [preflight._cause(failure), preflight._cause(other)])

    preflight._run_steps = steps
    report = preflight.run()
    assert [cause.fix for cause in report.causes] == ["plug in the cable", "compare ibstat"]
    assert report.also_failing == {"n1": ("driver-agrees",)}
    assert report.conclusion() == "failed"
    text = "\n".join(lines(report, Page(80)))
    assert "rdma         FAIL     n2: mlx5_3 is Down\n" in text
    assert "also failing       n1: driver-agrees\n" in text
    assert "gpuops validate --limit n1\n" in text
    assert text.endswith("change this first  n2: plug in the cable")


def test_every_node_that_fails_a_step_is_named_in_it():
    step = PreflightStep("reach", "fail", "refused", ("n3",), ("n7", "n8"))
    text = "\n".join(lines(Diagnosis(COMMAND, ("n3", "n7", "n8"), (step,)), Page(80)))
    assert "reach        FAIL     n3: refused; other causes on n[7-8]" in text


def facts(name, vendors):
    return Facts(name, dt.datetime.now(dt.timezone.utc), {"pci_vendors": frozenset(vendors)})


def test_nodes_that_an_earlier_run_blamed_are_the_last_to_choose():
    pool = SimpleNamespace(hosts={"n1": None, "n2": None, "n3": None}, excluded={})
    command = LaunchCommand("torchrun", "torchrun", count=2, words=("torchrun", "--nnodes=2", "a.py"))
    preflight = Preflight(command, pool, None, pytest.fail, avoid={"n1"})
    preflight._run_steps = list
    assert preflight.run().causes[0].fix.startswith("start it on n[2-3] only; ")
    preflight.avoid = {"n1", "n2", "n3"}
    preflight.log = StepLog()
    assert preflight.run().causes[0].fix.startswith("start it on n[1-2] only; ")


def judged_gpus(command, **vendors):
    """The preflight of a job on nodes whose PCI devices are of these vendors, after its step gpus."""
    preflight = Preflight(command, SimpleNamespace(hosts={}, excluded={}), None, pytest.fail)
    preflight._run_steps = lambda: preflight._check_gpus({name: facts(name, own) for name, own in vendors.items()})
    return preflight, preflight.run()


def test_nodes_without_gpus_among_others_are_left_out_of_the_job():
    preflight, diagnosis = judged_gpus(COMMAND, a={"8086"}, b={"8086", "10de"})
    assert diagnosis.causes[-1:] == (
        Cause("gpus", ("a",), "no NVIDIA GPU on this machine", "take these nodes out of the job"),
    )
    assert list(preflight._unhealthy) == ["a"]


def test_a_job_on_nodes_that_all_lack_gpus_is_unknown_unless_it_says_that_it_uses_none():
    preflight, diagnosis = judged_gpus(COMMAND, a={"8086"}, b={"8086"})
    fix = "use nodes with GPUs; for a job that uses none: --export=ALL,CUDA_VISIBLE_DEVICES="
    assert diagnosis.causes == (Cause("no-gpu", ("a", "b"), "no NVIDIA GPU on this machine", fix),)
    assert (diagnosis.conclusion(), preflight._unhealthy) == ("incomplete", {})
    for value in ("", "-1"):
        _, diagnosis = judged_gpus(
            replace(COMMAND, environment={"CUDA_VISIBLE_DEVICES": value}), a={"8086"}, b={"8086"}
        )
        assert (diagnosis.conclusion(), diagnosis.steps[-1].state) == ("ok", "skipped")


def test_a_job_on_a_node_with_a_lost_gpu_is_told_too():
    pool = SimpleNamespace(hosts={"n1": None}, excluded={})
    monitor = SimpleNamespace(prove=lambda: {"n1": Idleness("n1", "busy", "pid 7 python")})
    preflight = Preflight(COMMAND, pool, monitor, pytest.fail)
    preflight._unhealthy = {"n1": Excluded("n1", "unhealthy", "fails gpu-lost")}
    preflight._run_steps = preflight._all_reduce
    assert [cause.test for cause in preflight.run().causes] == ["busy"]


def test_a_node_that_is_lost_is_told_though_another_cause_names_it():
    pool = SimpleNamespace(hosts={"n1": None}, excluded={"n2": Excluded("n2", "unreachable", "no Python")})
    preflight = Preflight(COMMAND, pool, None, pytest.fail)
    preflight.log.add("environment", [Cause("environment", ("n1", "n2"), "torchrun is not there", "install it")])
    preflight._account_for_all()
    preflight._account_for_all()
    assert [(cause.test, cause.nodes) for cause in preflight.log.causes] == [
        ("environment", ("n1", "n2")),
        ("reach", ("n2",)),
    ]


def test_nothing_is_measured_without_all_nodes_of_the_job(last_step):
    gone = {"n3": Excluded("n3", "lost", "gone")}
    report = last_step(excluded=gone)
    assert [(step.name, step.state) for step in report.steps] == [("reach", "fail"), ("all-reduce", "skipped")]
    assert report.excluded == gone


def test_node_that_is_lost_while_it_is_proved_idle_is_a_cause_and_nothing_is_measured():
    pool = SimpleNamespace(hosts={"n1": None, "n2": None}, excluded={})

    def prove():
        pool.excluded["n2"] = Excluded("n2", "unreachable", "hung up")
        return {"n1": Idleness("n1", "idle")}

    preflight = Preflight(COMMAND, pool, SimpleNamespace(prove=prove), pytest.fail)
    preflight._run_steps = preflight._all_reduce
    diagnosis = preflight.run()
    assert diagnosis.causes == (Cause("reach", ("n2",), "hung up", "bring the node back, or remove it from the job"),)
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
    assert log.steps == [PreflightStep("x", "fail", "w", ("a", "c"), ("b",))]


def test_only_a_node_that_does_not_answer_is_3_and_any_other_cause_is_1():
    log = StepLog()
    log.add("reach", [Cause("reach", ("a",), "refused", "")])
    assert EXIT_CODES[log.diagnosis(COMMAND, ["a"]).conclusion()] == 3
    log.add("gid", [Cause("gid", ("a",), "w", "")])
    assert EXIT_CODES[log.diagnosis(COMMAND, ["a"]).conclusion()] == 1


def test_the_document_has_new_and_former_names_and_no_secrets():
    hidden = Secret("the password of test_preflight")
    cause = Cause("gid", ("a",), hidden.reveal(), "fix it")
    step = PreflightStep("gid", "fail", hidden.reveal(), ("a",), ("b",))
    excluded = {"b": Excluded("b", "unreachable", "refused", ConnectError("b", "refused", "refused"))}
    diagnosis = Diagnosis(COMMAND, ("a", "b"), (step,), (cause,), excluded)
    document = json.loads(diagnosis.to_json())
    assert (document["schema"], document["launcher"], document["hosts"]) == ("gpuops.preflight/1", "srun", ["a", "b"])
    assert document["steps"] == [{"name": "gid", "state": "fail", "detail": MASK, "nodes": ["a", "b"], "said": MASK}]
    (told,) = document["causes"]
    assert (told["test"], told["rung"], told["fix"], told["change"]) == ("gid", "gid", "fix it", "fix it")
    assert told["why"] == MASK
    assert document["excluded"] == {"b": {"kind": "unreachable", "why": "refused", "unreachable": "refused"}}


@pytest.fixture
def logins():
    """The step of the logins of an mpirun over n1 and n2, with the answers of this machine and of n1."""

    def run(here, first=""):
        def completed(question, text):
            return Completed("here", question, 127 if text is None else 0, text or "", timed_out=text == "late")

        asked = []

        def ask(questions, names):
            asked.extend(names)
            return {name: [completed(questions[0], first)] for name in names}

        command = LaunchCommand("mpirun", "x", hosts=("n1", "n2"), words=("mpirun", "-H", "n1,n2", "x"))
        pool = SimpleNamespace(hosts={n: SimpleNamespace(address=f"10.0.0.{n[1]}") for n in ("n1", "n2")}, ask=ask)
        preflight = Preflight(command, pool, None, None, here=lambda question: completed(question, here))
        preflight._check_logins()
        return [(step.name, step.state) for step in preflight.log.steps], preflight.log.causes, asked

    return run


def test_logins_are_tested_from_where_the_launcher_is(logins):
    steps, causes, asked = logins("10.0.0.2 root@n2: Permission denied (publickey).\n")
    assert (steps, asked) == ([("ssh", "fail")], [])
    assert (causes[0].test, causes[0].nodes, causes[0].fix) == (
        "ssh",
        ("n2",),
        "ssh-copy-id 10.0.0.2   on this machine",
    )
    assert logins("") == ([("ssh", "ok")], [], [])


def test_without_the_launcher_here_logins_are_tested_from_the_first_node(logins):
    steps, causes, asked = logins(None, "n2 Host key verification failed.\n")
    assert (steps, asked) == ([("ssh", "fail")], ["n1"])
    assert causes[0].fix == "ssh n2 true   on n1, and compare and accept its host key"
    assert logins(None, None)[:2] == ([("ssh", "skipped")], [])
    assert logins("late")[:2] == ([("ssh", "skipped")], [])


def test_a_changed_host_key_is_recorded_after_a_look_and_another_lost_node_is_brought_back():
    changed = Excluded("n2", "unreachable", "host key changed", ConnectError("n2", "changed", kind="host_key"))
    pool = SimpleNamespace(hosts={"n1": None}, excluded={"n2": changed, "n3": Excluded("n3", "unreachable", "gone")})
    preflight = Preflight(COMMAND, pool, None, None)
    preflight._account_for_all()
    fixes = {cause.nodes[0]: cause.fix for cause in preflight.log.causes}
    assert fixes["n2"] == "compare its host key on its console, then gpuops trust n2 --replace"
    assert fixes["n3"] == "bring the node back, or remove it from the job"


def test_each_node_is_asked_about_its_own_part_of_the_job():
    asked = {}

    def each(work):
        for name in ("n1", "n2"):

            def batch(questions, name=name):
                asked[name] = questions[0].words[-2:]
                return [Completed(name, questions[0], 0)]

            work(SimpleNamespace(batch=batch, has_python=True), SimpleNamespace(name=name))
        return {}

    own = NodeCommand(program="/opt/no/torchrun", files=("/job/other.py",))
    command = LaunchCommand("torchrun", "torchrun", files=("/job/train.py",), by_node={"n2": own})
    Preflight(command, SimpleNamespace(each=each), None, None)._by_ssh()
    assert asked == {"n1": ("torchrun", "/job/train.py"), "n2": ("/opt/no/torchrun", "/job/other.py")}


def test_a_node_without_python_is_told_so_once_and_asked_nothing_more():
    def batch(questions):
        return [Completed("n1", questions[0], 0, "memlock unlimited\nend\n")]

    lost = []

    def each(work):
        with pytest.raises(LostError) as error:
            work(SimpleNamespace(batch=batch, has_python=False, node="n2"), SimpleNamespace(name="n2"))
        lost.append(excluded_by("n2", error.value))
        return {"n1": work(SimpleNamespace(batch=batch, has_python=True, node="n1"), SimpleNamespace(name="n1"))}

    pool = SimpleNamespace(hosts={"n1": None}, excluded={}, each=each, exclude=lambda _: None)
    preflight = Preflight(COMMAND, pool, None, None)
    assert list(preflight._by_ssh()) == ["n1"]
    pool.excluded = {"n2": lost[0]}
    (cause,) = preflight._gone()
    assert (cause.test, cause.why) == ("reach", "no Python 3 found on the node")
    assert cause.fix == "install Python 3 on \x00node\x00, or set ansible_python_interpreter to its path"
