"""A job of 64 ranks on 64 OpenSSH servers, one rank each, and that nothing of it is left whenever it is ended."""

import importlib.util
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import sysconfig
import time

import pytest

HERE = pathlib.Path(__file__).parent
INSTANTS = range(0, 20, 1 if os.environ.get("GPUOPS_ALL_INSTANTS") else 5)
"""Each takes 8 s, so that usually four of twenty are tried."""
HOSTS = 64
SLEEPING = """
import os, subprocess, sys, time
children = [subprocess.Popen(["sleep", "611"]), subprocess.Popen(["sleep", "611"], start_new_session=True)]
print("pid", os.getpid(), flush=True)
time.sleep(611)
"""
"""A rank with children, of which one has left its process group."""
PYTHON = "/usr/bin/python3" if os.geteuid() == 0 else sys.executable
"""One that the account can run: root's own is often private."""


@pytest.fixture
def with_torch():
    """Skips without a torch that `PYTHON` can import too, and unless everything is asked for."""
    if not os.environ.get("GPUOPS_ALL_INSTANTS"):
        pytest.skip("optional: 64 ranks of torch need more than two cores; to run them: GPUOPS_ALL_INSTANTS=1")
    spec = importlib.util.find_spec("torch")
    version = subprocess.run([PYTHON, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
    if spec is None or version.split(".")[:2] != [str(number) for number in sys.version_info[:2]]:
        pytest.skip("optional: there is no torch here, which is the extra gpuops[launch], or it is for another Python")


@pytest.fixture(scope="module")
def servers(start_sshd):
    return [start_sshd(host_keys=("host_ed25519",)) for _ in range(HOSTS)]


@pytest.fixture
def inventory(servers, trusted, account, tmp_path):
    """An inventory of all servers, whose keys are recorded."""
    trusted("".join(server.known("127.0.0.1") for server in servers))
    lines = [
        f"n{i:02} ansible_host=127.0.0.1 ansible_port={server.port} ansible_user={account.name}"
        for i, server in enumerate(servers)
    ]
    path = tmp_path / "hosts.ini"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def start(inventory, tmp_path):
    """Starts the job of a script, as a process that gets signals; ended with the test."""
    started = []

    def run(*words):
        packages = sysconfig.get_path("purelib")
        line = [sys.executable, HERE / "driving.py", inventory, tmp_path / "logs", packages, PYTHON, *words]
        started.append(
            subprocess.Popen(list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


def ended(process, timeout=300):
    out, err = process.communicate(timeout=timeout)
    assert out, err
    return json.loads(out)


@pytest.fixture
def nothing_left(processes):
    """Asserts that nothing runs on any host any more; sessions that were just closed may need a moment."""

    def check():
        ends = time.monotonic() + 30
        while processes() and time.monotonic() < ends:
            time.sleep(0.2)
        assert processes() == []

    return check


def readable(path):
    """The script in a place that the account can read: pytest's folder is its own."""
    return path.read_text()


def test_all_of_64_ranks_assert_their_seats_and_reduce_together(with_torch, start, nothing_left, tmp_path):
    document = ended(start("-c", readable(HERE / "reducing.py"), "3"), 600)
    assert document["conclusion"] == "ok", (document["failure"], document["lost"], document["left"])
    assert document["asserted"] == list(range(HOSTS))
    assert f"sum {sum(range(HOSTS))} of {HOSTS}\n" in (tmp_path / "logs" / "rank-63.log").read_text()
    nothing_left()


def test_a_rank_that_is_killed_while_all_reduce_is_the_cause(with_torch, start, nothing_left, tmp_path):
    job = start("-c", readable(HERE / "reducing.py"), "0")
    log = tmp_path / "logs" / "rank-17.log"
    wait_for(job, lambda: log.exists() and "pid" in log.read_text(), 500)
    os.kill(int(log.read_text().split("pid ")[1].split()[0]), signal.SIGKILL)
    document = ended(job)
    assert (document["failure"]["node"], document["failure"]["ranks"], document["failure"]["signal"]) == (
        "n17",
        [17],
        9,
    )
    nothing_left()


def test_ctrl_c_while_all_reduce_leaves_nothing(with_torch, start, nothing_left, tmp_path):
    job = start("-c", readable(HERE / "reducing.py"), "0")
    log = tmp_path / "logs" / "rank-40.log"
    wait_for(job, lambda: log.exists() and "pid" in log.read_text(), 500)
    job.send_signal(signal.SIGINT)
    document = ended(job)
    assert (document["conclusion"], document["failure"], document["left"]) == ("interrupted", None, {})
    nothing_left()


def wait_for(job, is_so, seconds):
    ends = time.monotonic() + seconds
    while not is_so():
        if job.poll() is not None:
            document = ended(job)
            pytest.fail(f"the job ended: {document['failure']}, lost {document['lost']}")
        assert time.monotonic() < ends
        time.sleep(0.1)


@pytest.mark.parametrize("number", INSTANTS)
def test_ctrl_c_at_any_instant_leaves_nothing(start, nothing_left, tmp_path, number):
    """Half of them while the job starts, half of them while it runs."""
    job = start("-c", SLEEPING)
    if number % 2:
        log = tmp_path / "logs" / f"rank-{number:02}.log"
        wait_for(job, log.exists, 120)
    time.sleep(random.Random(number).uniform(0.2, 4.0))
    job.send_signal(signal.SIGINT)
    out, err = job.communicate(timeout=60)
    document = json.loads(out or "{}")
    assert document.get("failure") is None
    assert document.get("conclusion", "interrupted") == "interrupted", err
    assert not number % 2 or document["started"]
    nothing_left()


@pytest.mark.parametrize("number", INSTANTS)
def test_a_rank_killed_at_any_instant_ends_all_and_is_named(start, nothing_left, tmp_path, number):
    chosen = random.Random(number)
    rank = chosen.randrange(HOSTS)
    job = start("-c", SLEEPING)
    log = tmp_path / "logs" / f"rank-{rank:02}.log"
    wait_for(job, lambda: log.exists() and log.read_text().endswith("\n"), 120)  # perhaps before others have started
    time.sleep(chosen.uniform(0.0, 3.0))
    os.kill(int(log.read_text().split()[1]), signal.SIGKILL)
    document = ended(job, 60)
    assert (document["failure"]["node"], document["failure"]["signal"]) == (f"n{rank:02}", 9)
    nothing_left()
