"""A lab from up to down, as a user runs it."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from gpuops.lab import cluster

PROGRAM = [sys.executable, "-c", "from gpuops.cli import main; main()", "lab"]


@pytest.fixture
def elsewhere():
    """Create a temporary directory that the hosts' user can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def gpuops(tmp_path, elsewhere):
    def run(*words, timeout=60):
        env = {**os.environ, "TMPDIR": str(elsewhere)}
        return subprocess.run(
            [*PROGRAM, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=timeout, check=False
        )

    yield run
    run("down")


def test_up_status_fault_clear_down(gpuops, tmp_path, elsewhere):
    (tmp_path / "pty.py").write_text("raise ValueError")  # a file of the user, with the name of a module of Python
    up = gpuops("up", "--nodes", "2", "--fault", "gpu02:gpu2:lost")
    assert up.returncode == 0, up.stderr
    assert "gpu02:gpu2:lost" in up.stdout
    folder = tmp_path / ".gpuops" / "lab"
    assert stat.S_IMODE((folder / "id_ed25519").stat().st_mode) == 0o600
    inventory = (folder / "inventory.yml").read_text()
    assert f'ansible_ssh_private_key_file: "{folder / "id_ed25519"}"' in inventory
    assert f"UserKnownHostsFile={folder / 'known_hosts'}" in inventory
    assert "mlx5_7: {rail: 7, leaf: L7}" in inventory

    assert gpuops("fault", "gpu01:gpu1:power-cap=500", "gpu02:host:hang").returncode == 0
    hosts = json.loads(gpuops("status", "--format", "json").stdout)["hosts"]
    assert {name: host["faults"] for name, host in hosts.items()} == {
        "gpu01": ["gpu1:power-cap=500"],
        "gpu02": ["gpu2:lost", "host:hang"],
    }
    assert gpuops("clear", "gpu02").returncode == 0
    assert gpuops("status").stdout.splitlines()[1].split()[2:] == ["healthy"]
    assert "gpu1:power-cap=500" in gpuops("status").stdout

    again = gpuops("up")
    assert again.returncode == 2
    assert "a lab is already running" in again.stderr
    assert gpuops("down").stdout == "the lab is stopped\n"
    assert not (tmp_path / ".gpuops").exists()
    assert list(elsewhere.iterdir()) == []
    assert gpuops("down").stdout == "no lab is running here\n"


def test_lab_of_the_demo_is_meant_if_no_other_runs(gpuops, tmp_path, elsewhere, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    cluster.up(tmp_path / ".gpuops" / "demo", "hgx-h100", 1, ["gpu01:gpu2:lost"])
    assert "gpu2:lost" in gpuops("status").stdout
    assert gpuops("fault", "gpu01:gpu3:lost").returncode == 0
    assert gpuops("clear").returncode == 0
    assert "healthy" in gpuops("status").stdout
    assert gpuops("audit", "gpu01").returncode == 0
    assert gpuops("down").stdout == "the lab is stopped\n"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("up", "--nodes", "0"), "1 to 4000 hosts, not 0"),
        (("up", "--profile", "hgx-h10"), 'did you mean "hgx-h100"?'),
        (("up", "--fault", "gpu09:gpu0:lost"), 'the lab has no host "gpu09"; did you mean "gpu0'),
        (("up", "--fault", "gpu01:gpu0:lots"), 'did you mean "lost"?'),
        (("up", "--fault", "gpu01"), "write HOST:SUBJECT:FAULT"),
        (("status",), "to start one: gpuops lab up"),
        (("fault", "gpu01:gpu0:lost"), "to start one: gpuops lab up"),
    ],
)
def test_wrong_words_are_one_sentence_and_leave_nothing(gpuops, tmp_path, words, sentence):
    done = gpuops(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_fault_changes_nothing_on_a_running_lab(gpuops):
    gpuops("up", "--nodes", "2")
    done = gpuops("fault", "gpu01:gpu0:lost", "gpu02:gpu8:lost")
    assert done.returncode == 2
    assert 'has no "gpu8"' in done.stderr
    assert "lost" not in gpuops("status").stdout
    assert 'no host "gpu2"; did you mean "gpu02"' in gpuops("clear", "gpu2").stderr


def test_a_port_in_use_is_named_and_nothing_is_left(gpuops, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = gpuops("up", "--nodes", "1", "--port-base", str(port))
    assert done.returncode == 2
    assert f"port {port} is in use" in done.stderr
    assert not (tmp_path / ".gpuops").exists()


@pytest.mark.root("start a lab whose hosts run as somebody else")
def test_a_temporary_folder_that_is_closed_is_named(gpuops, tmp_path, elsewhere):
    elsewhere.chmod(0o700)
    done = gpuops("up", "--nodes", "1")
    assert done.returncode == 2
    assert f"the lab's unprivileged user cannot enter {elsewhere}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_what_a_killed_lab_left_is_swept_away(gpuops, tmp_path):
    gpuops("up", "--nodes", "1")
    state = json.loads((tmp_path / ".gpuops" / "lab" / "state.json").read_text())
    os.kill(state["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 5
    while gpuops("status").returncode == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "to clean up: gpuops lab down" in gpuops("status").stderr
    assert gpuops("up", "--nodes", "1").returncode == 0
    assert not Path(state["sandbox"]).exists()


@pytest.mark.parametrize("seconds", [0.0, 0.3, 0.8])
def test_ctrl_c_while_it_starts_leaves_nothing(tmp_path, elsewhere, seconds):
    env = {**os.environ, "TMPDIR": str(elsewhere)}
    words = [*PROGRAM, "up", "--nodes", "4000"]
    starting = subprocess.Popen(words, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while not (tmp_path / ".gpuops" / "lab" / "server.log").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(seconds)
    starting.send_signal(signal.SIGINT)
    _, err = starting.communicate(timeout=60)
    if starting.returncode == 0:  # a fast machine finished before the key was pressed
        subprocess.run([*PROGRAM, "down"], cwd=tmp_path, env=env, check=True)
    else:
        assert (starting.returncode, err.strip()) == (130, "gpuops: interrupted")
    assert list(tmp_path.iterdir()) == []
    assert list(elsewhere.iterdir()) == []


def test_a_lab_whose_folder_is_deleted_ends_by_itself(gpuops, tmp_path):
    gpuops("up", "--nodes", "1")
    folder = tmp_path / ".gpuops" / "lab"
    state = json.loads((folder / "state.json").read_text())
    for path in folder.iterdir():
        path.unlink()
    deadline = time.monotonic() + 10
    while Path(state["sandbox"]).exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(state["sandbox"]).exists()
