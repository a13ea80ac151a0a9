import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.probes.nvidia.occupancy import Holder, driver_loaded, occupancy
from gpuops.probing import Unknown

ROWS = (
    ("d", "root", "driver/nvidia"),
    ("l", "root", "1/exe -> /usr/lib/systemd/systemd"),
    ("l", "root", "2/exe"),
    ("l", "root", "900/fd/3 -> /dev/nvidiactl"),
    ("l", "root", "900/exe -> /usr/bin/nvidia-persistenced"),
    ("l", "alice", "4711/fd/5 -> /dev/nvidia0"),
    ("l", "alice", "4711/fd/6 -> /dev/nvidiactl"),
    ("l", "alice", "4711/fd/7 -> /dev/nvidia0"),
    ("l", "alice", "4711/exe -> /opt/my\\ conda/bin/python3.11"),
)
SEEN = "".join(
    f"  470238      0 {kind}r-x------   1 {user:8} {user:8}   64 Nov 20  2026 /proc/{path}\n"
    for kind, user, path in ROWS
)
GONE = "find: /proc/2/exe: No such file or directory\nfind: '/proc/78/fd/3': No such process\n"
DENIED = "find: '/proc/1/fd': Permission denied\n"


def read(answer, out=SEEN, **more):
    return occupancy.read(answer(occupancy, out, **more))


@pytest.mark.parametrize("ending", [{}, {"err": GONE, "status": 1}])
def test_who_holds_the_device_files_is_told_with_program_and_user(answer, ending):
    found = read(answer, **ending)
    assert found.driver_loaded
    assert not found.hidden
    daemon, job = found.holders
    assert (daemon.name, daemon.is_daemon) == ("nvidia-persistenced", True)
    assert job == Holder(4711, "/opt/my conda/bin/python3.11", "alice", ("/dev/nvidia0", "/dev/nvidiactl"))
    assert (job.name, job.is_daemon) == ("python3.11", False)


def test_a_program_that_was_replaced_while_it_ran_keeps_its_name():
    assert Holder(1, "/usr/bin/nv-hostengine (deleted)", "root", ()).is_daemon


def test_a_node_without_the_driver_says_so(answer):
    assert not read(answer, SEEN.splitlines()[1] + "\n").driver_loaded


def test_what_was_not_seen_is_reported(answer):
    assert "Permission denied" in read(answer, err=GONE + DENIED, status=1).hidden
    assert "Input/output error" in read(answer, err="find: '/proc/77': Input/output error\n", status=1).hidden
    assert read(answer, status=1).hidden
    assert read(answer, SEEN.replace("/proc/1/exe", "/proc/3/exe")).hidden == "/proc hides the processes of other users"


def test_without_root_nothing_is_known_and_root_would_know(answer):
    found = read(answer, "", err="sudo: a password is required\n", status=1)
    assert found.needs_root
    assert "gpuops sudoers" in found.why


@pytest.mark.parametrize("text", ["", "\n", SEEN[:-4], SEEN + "garbage\n", SEEN.replace("4711", "x"), SEEN + "\0"])
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


@pytest.mark.parametrize(
    ("modules", "loaded"),
    [
        ("nvidia_uvm 1 0 - Live 0x0\nnvidia 2 3 nvidia_uvm, Live 0x0\n", True),
        ("nvidia_uvm 1 0\nmlx5_core 1 0\n", False),
    ],
)
def test_everybody_sees_whether_the_driver_is_loaded(answer, files_text, modules, loaded):
    assert driver_loaded.read(answer(driver_loaded, files_text({"/proc/modules": modules}))) is loaded


@pytest.mark.parametrize("text", ["", "/proc/modules\0\0", "/proc/modules\0nvidia"])
def test_a_kernel_that_lists_no_module_does_not_say(answer, text):
    assert isinstance(driver_loaded.read(answer(driver_loaded, text)), Unknown)
