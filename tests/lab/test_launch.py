"""gpuops launch on eight lab hosts: logs, the first failure, Ctrl-C, and that nothing is left on any host."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace

import pytest
from tests.program import run_gpuops

from gpuops.lab import cluster

LAYOUT = ("--layout", "dp=16,tp=4", "--no-preflight", "--grace", "1")


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("launching") / ".gpuops" / "lab"
    hosts = cluster.up(folder, "hgx-h100", 8, [])
    yield SimpleNamespace(folder=folder, hosts=hosts)
    cluster.down(folder)


@pytest.fixture
def words(eight):
    return ("launch", "-i", str(eight.folder / "inventory.yml"))


@pytest.fixture
def place():
    """Return a directory that the user of the hosts can read: pytest's own is closed again by any other pytest."""
    with tempfile.TemporaryDirectory(prefix="gpuops-job-") as folder:
        pathlib.Path(folder).chmod(0o755)
        yield pathlib.Path(folder)


@pytest.fixture
def script(place):
    """Return a function that writes a Python script."""

    def write(text):
        path = place / "train.py"
        path.write_text(text)
        path.chmod(0o644)
        return path

    return write


def left(path):
    """Return the processes that run ``path``, and the scripts of gpuops that started them."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(path).encode() in entry.read_bytes() and b"launch" not in entry.read_bytes():
                found.append(entry.parent.name)
        except OSError:
            continue
    return found


def test_a_job_prints_ends_and_has_a_log_for_each_rank(words, script, place):
    path = script("import os\nprint('same')\nprint('I am', os.environ['RANK'])\n")
    done = run_gpuops(*words, *LAYOUT, "--logs", "logs", "--", path, cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    same = [line for line in done.stdout.splitlines() if line.endswith("] same")]
    assert len(same) < 16, "equal lines are folded, as far as they come together"
    assert "64 of 64 ranks confirmed" in done.stdout
    assert (place / "logs" / "rank-37.log").read_text() == "same\nI am 37\n"
    assert len(list((place / "logs").iterdir())) == 64
    assert left(path) == []


@pytest.mark.long
def test_one_rank_that_fails_is_the_cause_and_ends_all(words, script, place):
    path = script(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '21':\n    time.sleep(1)\n    print('out of tea')\n    sys.exit(7)\n"
        "time.sleep(600)\n"
    )
    done = run_gpuops(*words, *LAYOUT, "--json", "--", path, cwd=place)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    failure = document["failure"]
    assert (failure["node"], failure["ranks"], failure["exit_code"]) == ("gpu03", [21], 7)
    assert failure["last_lines"] == ["out of tea"]
    assert left(path) == []


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_the_end_of_the_client_leaves_nothing(words, script, place, number):
    path = script("import time\nprint('runs', flush=True)\ntime.sleep(600)\n")
    line = (sys.executable, "-m", "gpuops", *words, *LAYOUT, "--logs", "logs", "--", str(path))
    client = subprocess.Popen(line, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: client.poll() is not None or len(list((place / "logs").glob("rank-*"))) == 64)
    assert client.poll() is None, client.communicate()[0]
    assert len(left(path)) == 64
    os.kill(client.pid, number)
    printed, _ = client.communicate(timeout=60)
    assert client.returncode == (130 if number != signal.SIGKILL else -9), printed
    wait_for(lambda: not left(path))


def wait_for(is_so):
    ends = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.1)


@pytest.mark.long
def test_a_rank_on_another_gpu_than_planned_ends_before_its_first_step(words, script, place):
    path = script("open('/tmp/never', 'x')\n")
    swap = f'if [ "$RANK" = 5 ]; then export CUDA_VISIBLE_DEVICES=5,4,3,2,1,0,6,7; fi; exec python3 {path}'
    done = run_gpuops(*words, "--layout", "tp=8", "--no-preflight", "--json", "--", "sh", "-c", swap, cwd=place)
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert list(document["misplaced"]) == ["5"]
    assert "GPU 0 is GPU-" in document["misplaced"]["5"][0]


def test_a_dry_run_starts_nothing(words, script, place):
    path = script("")
    done = run_gpuops(*words, *LAYOUT, "--dry-run", "--env", "TOKEN=secret", "--", path, cwd=place)
    assert done.returncode == 0
    assert "gpu01     ranks 0-7 on GPUs 0,1,2,3,4,5,6,7: python3" in done.stdout
    assert "nothing was started" in done.stdout
    assert "secret" not in done.stdout
    assert not (place / "gpuops-logs").exists()


@pytest.mark.long
def test_a_host_that_is_away_keeps_the_job_from_starting(eight, words, script, place):
    path = script(f"open({str(place / 'ran')!r}, 'w')\n")
    render = ("render", *words[1:], "--layout", "dp=2,tp=8", "-t", "torchrun", "--limit", "gpu[01-02]")
    assert run_gpuops(*render, "--", path, cwd=place).returncode == 0
    cluster.inject(eight.folder, ["gpu02:host:refuse"])
    try:
        done = run_gpuops(*words, "launch", "--no-preflight", cwd=place)
    finally:
        cluster.clear(eight.folder, [])
    assert done.returncode == 3, done.stdout + done.stderr
    assert "gpu02" in done.stdout
    assert "not started" in done.stdout


@pytest.mark.long
def test_files_are_started_by_the_script_of_each_node(words, script, place):
    path = script("")
    limit = ("--limit", "gpu[01-02]")
    render = ("render", *words[1:], "--layout", "dp=2,tp=8", "-t", "torchrun", *limit)
    assert run_gpuops(*render, "--", path, cwd=place).returncode == 0
    for node in ("gpu01", "gpu02"):
        edited = place / "launch" / f"static-{node}.sh"
        edited.write_text(f"echo {node} of $PWD; exit 3\n")
    done = run_gpuops(*words, "launch", "--no-preflight", "--workdir", "/", cwd=place)
    assert done.returncode == 1
    assert "[gpu01] gpu01 of /" in done.stdout.splitlines()
    assert "ended with exit code 3" in done.stdout


def test_a_target_of_slurm_is_submitted_or_says_what_is_missing(words, script, place, monkeypatch):
    path = script("")
    render = ("render", *words[1:], "--layout", "dp=2,tp=8", "-t", "slurm", "--limit", "gpu[01-02]")
    assert run_gpuops(*render, "--", path, cwd=place).returncode == 0
    (place / "bin").mkdir()
    fake = place / "bin" / "sbatch"
    fake.write_text("#!/bin/sh\necho Submitted batch job 7 in $(basename $PWD)\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place / 'bin'}:{os.environ['PATH']}")
    done = run_gpuops(*words, "launch", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "Submitted batch job 7 in launch" in done.stdout


def test_a_target_that_gpuops_cannot_start_is_refused(words, script, place):
    path = script("")
    render = ("render", *words[1:], "--layout", "dp=2,tp=8", "-t", "openmpi", "--limit", "gpu[01-02]")
    assert run_gpuops(*render, "--", path, cwd=place).returncode == 0
    done = run_gpuops(*words, "launch", cwd=place)
    assert done.returncode == 2
    assert "run it yourself (bash run.sh)" in done.stderr


def test_preflight_keeps_a_job_from_starting(words, script, place):
    path = script(f"open({str(place / 'ran')!r}, 'w')\n")
    options = ("--layout", "dp=2,tp=8", "--limit", "gpu[01-02]", "--env", "NCCL_SOCKET_IFNAME=nothing0")
    done = run_gpuops(*words, *options, "--", path, cwd=place)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "change this first  --env NCCL_SOCKET_IFNAME=" in done.stdout
    assert not (place / "ran").exists()


@pytest.mark.long
def test_preflight_reads_the_script_of_every_node(words, script, place):
    path = script("")
    render = ("render", *words[1:], "--layout", "dp=2,tp=8", "-t", "torchrun", "--limit", "gpu[01-02]")
    assert run_gpuops(*render, "--", path, cwd=place).returncode == 0
    edited = place / "launch" / "static-gpu02.sh"
    text = edited.read_text()
    edited.write_text(
        text.replace("--node-rank=1", "--node-rank=0").replace("exec", "export NCCL_SOCKET_IFNAME=no0\nexec")
    )
    done = run_gpuops(*words, "launch", "--json", cwd=place)
    assert done.returncode == 1, done.stderr
    told = {cause["test"]: cause for cause in json.loads(done.stdout)["preflight"]["causes"]}
    assert re.fullmatch(r"static-gpu02\.sh:\d+: --node-rank=0, the plan says 1", told["files"]["why"])
    assert re.match(r"static-gpu02\.sh:\d+: NCCL_SOCKET_IFNAME is no0, but no such interface", told["interface"]["why"])
    assert told["files"]["nodes"] == told["interface"]["nodes"] == ["gpu02"]
