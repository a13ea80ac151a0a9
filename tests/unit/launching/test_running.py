"""A whole job on this machine: each node is a child process that runs the real scripts."""

import dataclasses
import os
import pathlib
import signal
import sys
import threading
import time

import pytest

from gpuops.cancellation import CancelToken
from gpuops.errors import LostError
from gpuops.launching.logs import Logs
from gpuops.launching.running import RunningJob
from gpuops.nodes import this_machine
from gpuops.transport.connections import Connections

PYTHON = sys.executable


class Heard:
    def __init__(self):
        self.lines, self.ends = [], []

    def line(self, ranks, nodes, text):
        self.lines.append((tuple(ranks), tuple(nodes), text))

    def ended(self, node, ranks, code):
        self.ends.append((node, tuple(ranks), code))


@pytest.fixture
def job(plan, tmp_path):
    """Return a job that `run` can start; ``grace`` is short."""

    def make(*command, grace=0.5, **more):
        return RunningJob(plan(*command, **more), Logs(tmp_path / "logs", 4), Heard(), grace)

    return make


def run(job, cancel=None):
    hosts = [dataclasses.replace(this_machine(), name=node.name) for node in job.plan.nodes]
    connections = Connections()
    try:
        with connections.group() as group:
            job.run(hosts, group, cancel or CancelToken())
    finally:
        connections.close()
    return job


def processes(word):
    """Return the processes with ``word`` in their command line."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def script(tmp_path, text):
    path = tmp_path / "job_of_test.py"
    path.write_text(text)
    return PYTHON, str(path)


def test_every_rank_gets_its_numbers_and_its_own_log(job, tmp_path):
    done = run(job("sh", "-c", "echo same; echo rank $RANK of $WORLD_SIZE on $LOCAL_RANK node $GROUP_RANK"))
    assert ((0, 1, 2, 3), (), "same") in done.listener.lines
    assert (tmp_path / "logs" / "rank-3.log").read_text() == "same\nrank 3 of 4 on 1 node 1\n"
    assert done.failure() is None
    assert sorted(done.listener.ends) == [("n1", (0,), 0), ("n1", (1,), 0), ("n2", (2,), 0), ("n2", (3,), 0)]


def test_every_rank_in_python_reports_its_seat(job, tmp_path):
    done = run(job(*script(tmp_path, "print('ready')")))
    assert done.asserted == {0, 1, 2, 3}
    assert done.misplaced == {}


def test_a_rank_that_is_not_where_it_was_planned_ends_before_its_first_step(job, tmp_path):
    words = script(tmp_path, f"open({str(tmp_path / 'ran')!r} + __import__('os').environ['LOCAL_RANK'], 'w')")
    swap = f'if [ "$RANK" = 1 ]; then export LOCAL_RANK=7; fi; exec {" ".join(words)}'
    done = run(job("sh", "-c", swap))
    assert done.misplaced == {1: ("LOCAL_RANK is 7, planned is 1",)}
    assert done.failure().ranks == (1,)
    assert done.failure().code == 78
    assert not (tmp_path / "ran7").exists()


def test_a_rank_of_another_node_does_not_belong_here(job, tmp_path):
    words = script(tmp_path, "")
    done = run(job("sh", "-c", f'if [ "$RANK" = 3 ]; then export RANK=0; fi; exec {" ".join(words)}'))
    assert done.misplaced == {0: ("rank 0 does not belong on this node, which has ranks 2, 3",)}


def test_what_a_rank_starts_is_no_rank_and_keeps_its_own_output(job, tmp_path):
    child = f"import subprocess; print(subprocess.run([{PYTHON!r}, '-c', 'print(5)'], capture_output=True).stdout)"
    done = run(job(*script(tmp_path, child)))
    assert done.listener.lines == [((0, 1, 2, 3), (), "b'5\\n'")]


def test_the_first_failure_is_the_cause_and_ends_the_others(job, tmp_path):
    text = "import os, time\nif os.environ['RANK'] == '2':\n    print('boom'); raise SystemExit(7)\ntime.sleep(600)"
    done = run(job(*script(tmp_path, text)))
    failure = done.failure()
    assert (failure.node, failure.ranks, failure.code, failure.last_lines) == ("n2", (2,), 7, ("boom",))
    assert processes(f"{tmp_path}/job_of_test.py") == []


def test_a_signal_is_named(job, tmp_path):
    text = "import os, time\nif os.environ['RANK'] == '1':\n    os.kill(os.getpid(), 9)\ntime.sleep(600)"
    assert run(job(*script(tmp_path, text))).failure().ending == "ended by signal 9 (SIGKILL)"


@pytest.mark.parametrize("program", ["no-such-program", "/nonexistent", "./nonexistent"])
def test_a_program_that_is_not_there_is_named(job, program):
    failure = run(job(program)).failure()
    assert failure.code == 127
    assert failure.ending == f"was not started: {program}: no such file or directory"


def test_a_directory_that_is_not_there_is_named(job, tmp_path):
    start = job("true")
    start.plan = dataclasses.replace(start.plan, folder=str(tmp_path / "nowhere"))
    assert run(start).failure().why == f"{tmp_path / 'nowhere'}: no such file or directory"


@pytest.mark.parametrize(
    "hide",
    [
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "import os; os.setsid() if os.fork() == 0 else None",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)",
    ],
    ids=["ignores TERM", "leaves its group", "daemon"],
)
def test_nothing_is_left_whatever_a_job_does(job, tmp_path, hide):
    text = f"{hide}\nimport os, time\nopen({str(tmp_path)!r} + f'/at{{os.getpid()}}', 'w').close()\ntime.sleep(600)"
    cancel = CancelToken()
    start = job(*script(tmp_path, text))
    threading.Thread(
        target=cancel_when, args=(cancel, lambda: len(list(tmp_path.glob("at*"))) >= 8 - 4 * ("fork" not in hide))
    ).start()
    done = run(start, cancel)
    assert processes(f"{tmp_path}/job_of_test.py") == []
    assert (done.left, done.unended) == ({}, ())


def cancel_when(cancel, is_so):
    ends = time.monotonic() + 30
    while not is_so() and time.monotonic() < ends:
        time.sleep(0.05)
    cancel.cancel()


def test_a_supervisor_that_is_killed_leaves_nothing_and_its_node_is_lost(job, tmp_path):
    text = f"import os, time\nopen({str(tmp_path)!r} + '/at' + os.environ['RANK'], 'w').close()\ntime.sleep(600)"
    start = job(*script(tmp_path, text))

    def kill():
        cancel_when(CancelToken(), lambda: len(list(tmp_path.glob("at*"))) == 4)
        (rank, *_) = processes(f"{tmp_path}/job_of_test.py")
        parent = pathlib.Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(parent), 9)

    threading.Thread(target=kill).start()
    done = run(start)
    assert len(done.lost) == 1
    ends = time.monotonic() + 10
    while processes(f"{tmp_path}/job_of_test.py") and time.monotonic() < ends:
        time.sleep(0.1)
    assert processes(f"{tmp_path}/job_of_test.py") == []


def test_a_second_interrupt_does_not_count_as_the_end(job, tmp_path):
    hard = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    text = (
        f"{hard}\nimport os, time\nopen({str(tmp_path)!r} + '/at' + os.environ['RANK'], 'w').close()\ntime.sleep(600)"
    )
    start = job(*script(tmp_path, text), grace=3.0)

    def interrupt_twice():
        cancel_when(CancelToken(), lambda: len(list(tmp_path.glob("at*"))) == 4)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.7)

    threading.Thread(target=interrupt_twice).start()
    with pytest.raises(KeyboardInterrupt):
        run(start)
    assert processes(f"{tmp_path}/job_of_test.py")
    assert start.unended == ("n1", "n2")
    ends = time.monotonic() + 30
    while processes(f"{tmp_path}/job_of_test.py") and time.monotonic() < ends:
        time.sleep(0.1)
    assert processes(f"{tmp_path}/job_of_test.py") == []


def test_nothing_starts_if_a_node_cannot_be_reached(job, tmp_path, monkeypatch):
    start = job("sh", "-c", f"touch {tmp_path}/started")

    def refuse(transport, *_scripts):
        raise LostError("n2", "gone")

    monkeypatch.setattr("gpuops.transport.agent.AgentTransport.start", refuse)
    done = run(start)
    assert set(done.lost) == {"n1", "n2"}
    assert not done.started
    assert not (tmp_path / "started").exists()


def test_a_report_that_makes_no_sense_loses_the_node(job):
    start = job("true")
    with pytest.raises(LostError, match="makes no sense"):
        start._take("n1", {"ended": 5}, 0.0)
    with pytest.raises(LostError, match="makes no sense"):
        start._take("n1", {"no such": {}}, 0.0)


def test_the_earliest_end_is_the_cause_even_if_its_report_comes_last(job):
    """The clocks of nodes differ; their alive reports show by how much."""
    start = job("true")
    start._take("n1", {"alive": 1000.0}, 10.0)
    start._take("n2", {"alive": 5.0}, 10.0)
    end = {"code": 1, "why": "", "told": False}
    start._take("n2", {"ended": {**end, "ranks": [2], "at": 7.0}}, 12.1)
    start._take("n1", {"ended": {**end, "ranks": [0], "at": 1001.5}}, 12.9)
    assert start.failure().node == "n1"


def test_ends_that_gpuops_caused_are_no_failure(job):
    start = job("true")
    start._take("n1", {"ended": {"code": -15, "why": "", "told": True, "ranks": [0], "at": 1.0}}, 1.0)
    assert start.failure() is None


@pytest.mark.parametrize(
    ("ranks", "environment", "expected"), [(1, {}, ""), (2, {}, ""), (2, {"OMP_NUM_THREADS": "7"}, "7")]
)
def test_the_ranks_of_a_node_share_its_cores_unless_the_user_sets_it(job, monkeypatch, ranks, environment, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    topology = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    cores = len({pathlib.Path(topology.format(cpu)).read_text() for cpu in os.sched_getaffinity(0)})
    made = job("sh", "-c", "echo threads: $OMP_NUM_THREADS", environment=environment)
    node = made.plan.nodes[0]
    made.plan = dataclasses.replace(made.plan, nodes=(dataclasses.replace(node, seats=node.seats[:ranks]),))
    threads = expected or max(1, cores // ranks)
    assert [line[2] for line in run(made).listener.lines] == [f"threads: {threads}"]
