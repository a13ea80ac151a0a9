import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.probes.occupancy import Holder, occupancy
from gpuops.probing import Unknown

SEEN = """\
/proc/driver/nvidia root\x20
/proc/1/exe root /usr/lib/systemd/systemd
/proc/2/exe root\x20
/proc/900/fd/3 root /dev/nvidiactl
/proc/900/exe root /usr/bin/nvidia-persistenced
/proc/4711/fd/5 alice /dev/nvidia0
/proc/4711/fd/6 alice /dev/nvidiactl
/proc/4711/fd/7 alice /dev/nvidia0
/proc/4711/exe alice /opt/my conda/bin/python3.11
"""


def read(answer, out=SEEN, **more):
    return occupancy.read(answer(occupancy, out, **more))


def test_who_holds_the_device_files_is_told_with_program_and_user(answer):
    found = read(answer)
    assert found.driver_loaded
    assert not found.hidden
    daemon, job = found.holders
    assert (daemon.name, daemon.is_daemon) == ("nvidia-persistenced", True)
    assert job == Holder(4711, "/opt/my conda/bin/python3.11", "alice", ("/dev/nvidia0", "/dev/nvidiactl"))
    assert (job.name, job.is_daemon) == ("python3.11", False)
    assert found.users == {4711: "alice"}


def test_a_program_that_was_replaced_while_it_ran_keeps_its_name():
    assert Holder(1, "/usr/bin/nv-hostengine (deleted)", "root", ()).is_daemon


def test_a_node_without_the_driver_says_so(answer):
    assert not read(answer, "/proc/1/exe root /sbin/init\n").driver_loaded


def test_without_root_what_was_not_seen_is_told(answer):
    refused = "find: '/proc/1/fd': Permission denied\nfind: '/proc/9/fd': Permission denied\n"
    assert "without root" in read(answer, err=refused, status=1).hidden
    assert read(answer, err="find: '/proc/77': Input/output error\n", status=1).hidden.endswith("Input/output error")


def test_a_process_that_ended_before_its_turn_hides_nothing(answer):
    ended = "find: '/proc/40': No such file or directory\nfind: '/proc/72/ksm_stat': No such process\n"
    assert read(answer, err=ended, status=1).hidden == ""
    assert read(answer, err=ended + "find: '/proc/77/fd': Permission denied\n", status=1).hidden


def test_what_ended_while_it_was_looked_at_hides_nothing(answer):
    gone = "find: '/proc/77/fd': No such file or directory\nfind: '/proc/78/fd/3': No such process\n"
    assert not read(answer, err=gone, status=1).hidden
    assert "without root" in read(answer, err=gone + "find: '/proc/1/fd': Permission denied\n", status=1).hidden
    assert read(answer, status=1).hidden


def test_where_proc_hides_process_1_others_may_be_hidden_too(answer):
    assert "hidepid" in read(answer, SEEN.replace("/proc/1/exe", "/proc/3/exe")).hidden


@pytest.mark.parametrize(
    "text", ["", "\n", SEEN[:-4], SEEN + "garbage\n", "/proc/x/exe root /bin/sh\n", SEEN * 2 + "\0"]
)
def test_a_torn_list_is_unknown(answer, text):
    assert isinstance(read(answer, text), Unknown)


def test_no_find_and_no_answer_are_unknown(answer):
    assert isinstance(read(answer, "", err="find: not found", status=127), Unknown)
    assert isinstance(read(answer, timed_out=True, status=137), Unknown)


@pytest.mark.skipif(not Path("/proc/1/exe").is_symlink(), reason="there is no Linux /proc on this machine")
def test_the_question_finds_a_process_of_this_machine(answer):
    """The words as they are, but for what is looked for: a file that this test holds open."""
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import time; f = open('/dev/full'); print(flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
    )
    try:
        sleeper.stdout.readline()
        words = ["/dev/full" if word == "/dev/nvidia*" else word for word in occupancy.question.words]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
        (found,) = read(answer, done.stdout, err=done.stderr, status=done.returncode).holders
    finally:
        sleeper.send_signal(signal.SIGKILL)
        sleeper.communicate()
    assert (found.pid, found.devices) == (sleeper.pid, ("/dev/full",))
    assert found.name.startswith("python")
