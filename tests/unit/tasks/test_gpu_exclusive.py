import os
import subprocess

import pytest

from gpuops import Failed, NeedsOperator
from gpuops.playbook.parameters import as_params
from gpuops.playbook.planning import plan
from gpuops.playbook.task import Machine
from gpuops.probes.nvidia.occupancy import Holder, Occupancy, occupancy
from gpuops.probing import Probe, Unknown
from gpuops.shell import Completed

DAEMON = Holder(7, "/usr/bin/nvidia-persistenced", "root", ("/dev/nvidia0",))
JOB = Holder(4711, "/usr/bin/python3", "alice", ("/dev/nvidia0",))


@pytest.fixture
def planned(library, monkeypatch):
    """What the task plans where the GPUs are held like this."""

    def planned(held, **params):
        monkeypatch.setattr(Probe, "read", lambda probe, _: held if probe is occupancy else None)
        task = library["gpu_exclusive"]
        made = as_params(task, {"title": "do it", "words": ["work", "a b"], **params})
        return plan(task, made, Machine("n1"), lambda asked: [Completed("n1", q, 0) for q in asked], library)

    return planned


def test_whoever_computes_is_left_alone(planned):
    found = planned(Occupancy(driver_loaded=True, holders=(DAEMON, JOB)))
    assert found.changes == []
    assert found.stop == NeedsOperator("GPUs are in use (pid 4711 python3): end these processes first")


@pytest.mark.parametrize("held", [Unknown("no root"), Occupancy(driver_loaded=True, hidden="other users' processes")])
def test_nothing_is_done_where_nobody_can_tell_who_computes(planned, held):
    found = planned(held)
    assert (found.changes, type(found.stop)) == ([], Failed)


def test_it_outlives_the_connection_and_is_told_as_its_caller_says(planned):
    (change,) = planned(Occupancy(driver_loaded=True, holders=(DAEMON,)), before="a", after="b", kind="act").changes
    assert (change.what, change.before, change.after, change.kind) == ("do it", "a", "b", "act")
    assert change.detach


@pytest.fixture
def done(planned, tmp_path):
    """Runs the planned command with programs of our own; what they were asked, and how it ended."""

    def done(*, active, ended=0, started=0):
        log = tmp_path / "log"
        programs = {
            "systemctl": f"""[ "$1" != is-active ] || {{ case " {active} " in *" $3 "*) exit 0;; esac; exit 3; }}
echo "$@" >>{log}; [ "$1" != start ] || exit {started}""",
            "work": f'echo "work $1" >>{log}; exit {ended}',
        }
        for name, body in programs.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)
        (change,) = planned(Occupancy(driver_loaded=True)).changes
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        ran = subprocess.run(change.command.words, env=environment, check=False)
        return log.read_text().splitlines(), ran.returncode

    return done


def test_clients_are_stopped_in_order_and_come_back_in_reverse(done):
    lines, code = done(active="nvidia-dcgm gpuops-gpu-settings nvidia-persistenced nvidia-fabricmanager")
    assert lines == [
        "stop nvidia-dcgm",
        "stop gpuops-gpu-settings",
        "stop nvidia-persistenced",
        "stop nvidia-fabricmanager",
        "work a b",
        "start nvidia-fabricmanager",
        "start nvidia-persistenced",
        "start gpuops-gpu-settings",
        "start nvidia-dcgm",
    ]
    assert code == 0


def test_clients_come_back_though_the_command_failed(done):
    assert done(active="nvidia-dcgm", ended=3) == (["stop nvidia-dcgm", "work a b", "start nvidia-dcgm"], 3)


def test_a_client_that_does_not_come_back_is_a_failure(done):
    assert done(active="nvidia-dcgm", started=1)[1] == 1
