"""Ctrl-C and its relatives, on the real program against a node that hangs."""

import os
import signal
import subprocess
import sys
import time

import pytest


@pytest.fixture
def inventory(sshd, trusted, account, tmp_path, keys, home):
    """An inventory of three names for one server."""
    addresses = ["127.0.5.1", "127.0.5.2", "127.0.5.3"]
    trusted(sshd.known(*addresses))
    lines = ["all:", "  hosts:"]
    for number, address in enumerate(addresses):
        lines.append(
            f"    n{number}: {{ansible_host: {address}, ansible_port: {sshd.port}, ansible_user: {account.name}}}"
        )
    path = tmp_path / "inventory.yml"
    path.write_text("\n".join(lines) + "\n")
    return path


def gpuops(*words, **more):
    return subprocess.Popen(
        [sys.executable, "-c", "from gpuops.cli import main; main()", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )


def wait_until(condition, seconds=20.0):
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.05)
    return condition()


def test_every_node_answers(inventory):
    program = gpuops("run", "-i", inventory, "all", "--", "echo hi")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (0, "")
    assert out == "n[0-2]\n  hi\n"


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_ctrl_c_ends_the_program_and_what_it_started(inventory, processes, number, times):
    program = gpuops("run", "-i", inventory, "all", "--", "sleep 543 & sleep 543")
    assert wait_until(lambda: sum("sleep 543" in line for line in processes()) >= 6)
    began = time.monotonic()
    for _ in range(times):
        os.kill(program.pid, number)
        time.sleep(0.2)
    out, err = program.communicate(timeout=30)
    assert time.monotonic() - began < 10
    assert program.returncode == 130
    assert "Traceback" not in out + err
    assert wait_until(lambda: not any("543" in line for line in processes()), seconds=5)


def test_ctrl_c_tells_who_had_not_answered(inventory, processes):
    line = "[ $(echo $SSH_CONNECTION | cut -d' ' -f3) = 127.0.5.1 ] && echo quick || sleep 654"
    program = gpuops("run", "-i", inventory, "all", "--", line)
    assert wait_until(lambda: sum("sleep 654" in line for line in processes()) >= 2)
    time.sleep(0.5)
    os.kill(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=30)
    assert program.returncode == 130
    assert "n0\n  quick\n" in out, err
    assert "n[1-2]: interrupted before it answered" in out


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_a_killed_program_leaves_nothing_on_the_nodes(inventory, processes, number):
    program = gpuops("run", "-i", inventory, "all", "--", "sleep 765 & sleep 765")
    assert wait_until(lambda: sum("sleep 765" in line for line in processes()) >= 6)
    os.kill(program.pid, number)
    assert program.communicate(timeout=30) == ("", "")
    assert wait_until(lambda: not any("765" in line for line in processes()), seconds=5)


def test_a_reader_that_leaves_is_no_traceback(inventory):
    program = gpuops("run", "-i", inventory, "all", "--", "yes | head -100000")
    program.stdout.readline()
    program.stdout.close()
    assert "Traceback" not in program.stderr.read()
    program.wait(30)
    program.stderr.close()


def test_the_total_time_ends_the_run(inventory, processes):
    program = gpuops("run", "-i", inventory, "--total-timeout", "2", "all", "--", "sleep 876")
    out, err = program.communicate(timeout=30)
    assert program.returncode == 3, out + err
    assert "no answer within the run's 2 s" in out + err
    assert wait_until(lambda: not any("876" in line for line in processes()), seconds=5)
