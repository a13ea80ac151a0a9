"""Logins by ssh from where a job is typed: the query runs for real, with an ssh that answers as OpenSSH does."""

import os
import subprocess

import pytest

from gpuops.collective.preflight import logins
from gpuops.collective.preflight.launch_command import read_command
from gpuops.shell import Completed

ADDRESSES = ["10.0.0.1", "10.0.0.2"]
SSH = """#!/bin/sh
for word; do case $word in
    good) exit 0 ;;
    closed) echo '** banner **' >&2; echo 'root@closed: Permission denied (publickey).' >&2; exit 255 ;;
    new) echo 'No ED25519 host key is known for new.' >&2; echo 'Host key verification failed.' >&2; exit 255 ;;
esac done
echo "ssh: connect to host $5 port 22: Connection refused" >&2
exit 255
"""


def command(words):
    return read_command(words.split(), lambda _file: "good slots=8\nnew slots=8\n", {})


def asked(words, addresses=ADDRESSES, **environ):
    return logins.question(command(words), addresses, environ)


@pytest.fixture
def path(tmp_path):
    """A directory with an ssh and an mpirun."""
    for name, text in {"ssh": SSH, "mpirun": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def answer(question, path):
    done = subprocess.run(question.words, capture_output=True, text=True, check=False, env={"PATH": path})
    return Completed("here", question, done.returncode, done.stdout, done.stderr)


def test_hosts_that_let_nobody_in_are_named_with_what_helps(path):
    words = "mpirun -H good,closed,new,away ./a.out"
    found = logins.causes(command(words), answer(asked(words), path), "this machine", {"closed": "n2"})
    fixes = {cause.nodes[0]: cause.fix for cause in found}
    assert fixes == {
        "n2": "ssh-copy-id closed   on this machine",
        "new": "ssh new true   on this machine, and compare and accept its host key",
        "away": "ssh away true   on this machine must work without a question",
    }


def test_hosts_that_let_one_in_are_no_cause(path):
    words = "mpirun -H good,localhost ./a.out"
    assert not list(logins.causes(command(words), answer(asked(words), path), "this machine", {}))


def test_a_machine_without_the_launcher_is_told_apart(path):
    assert answer(asked("/nowhere/mpirun -H good,new ./a.out"), path).missing


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ("mpirun -H a,b ./a.out", True),
        ("deepspeed --hostfile=f train.py", True),
        ("deepspeed --hostfile=f --no-ssh train.py", False),
        ("deepspeed --hostfile=f --launcher=slurm train.py", False),
        ("mpirun -H a ./a.out", False),
        ("mpirun --mca plm_rsh_agent rsh -H a,b ./a.out", False),
        ("torchrun --nnodes=2 train.py", False),
        ("srun -w a,b ./a.out", False),
    ],
)
def test_only_launchers_that_log_in_are_asked_about(words, asks):
    assert (asked(words) is not None) == asks


def test_ports_of_this_machine_and_jobs_of_slurm_need_no_login():
    assert asked("mpirun -H a,b ./a.out", ["127.0.0.1", "localhost"]) is None
    assert asked("mpirun -H a,b ./a.out", SLURM_JOB_ID="7") is None
