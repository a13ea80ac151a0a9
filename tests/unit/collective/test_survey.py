import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from gpuops.collective.preflight.job_environment import (
    ClosedPath,
    JobEnvironment,
    by_node,
    by_srun,
    by_ssh,
    parse_survey,
)
from gpuops.collective.preflight.launch_command import NodeCommand
from gpuops.probing import Unknown
from gpuops.shell import Completed

TEXT = """\
memlock 65536
conf NCCL_DEBUG=WARN
conf NCCL_IB_HCA=mlx5_0
env NCCL_DEBUG=INFO
program /opt/conda/bin/torchrun
python 3.11.2
torch 2.9.1+cu130
nccl 2.27.7
end
"""


def test_a_survey_tells_versions_memory_and_settings():
    assert parse_survey(TEXT) == JobEnvironment(
        program="/opt/conda/bin/torchrun",
        python="3.11.2",
        torch="2.9.1+cu130",
        nccl="2.27.7",
        memlock_bytes=65536,
        environment={"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_0"},
    )


def test_what_python_complains_of_last_is_kept():
    found = parse_survey(
        "memlock unlimited\nprogram /x\npython 3.9.1\ntrouble Traceback:\ntrouble no torch here\nend\n"
    )
    assert (found.memlock_bytes, found.torch, found.trouble) == (None, "", "no torch here")


@pytest.mark.parametrize("text", ["", "\n", TEXT[:-5], TEXT.replace("memlock 65536\n", ""), "memlock much\nend\n"])
def test_a_survey_that_is_not_whole_is_unknown(text):
    assert isinstance(parse_survey(text), Unknown)


def test_the_lines_of_a_step_are_told_apart_by_node():
    answer = Completed(
        "login", by_srun("python", ["a", "b"]), 0, "a|memlock 1\nb|memlock 2\nsrun: noise\na|end\nb|end\n"
    )
    assert by_node(answer) == {"a": "memlock 1\nend\n", "b": "memlock 2\nend\n"}


def ask(question, **environment):
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment}
    done = subprocess.run(question.words, capture_output=True, text=True, check=False, env=env)
    return parse_survey(done.stdout)


def test_the_question_finds_what_is_on_this_machine(tmp_path):
    script = tmp_path / "torchrun"
    script.write_text(f"#!{sys.executable}\n")
    script.chmod(0o755)
    found = ask(
        by_ssh(NodeCommand(program="torchrun")), PATH=f"{tmp_path}:/usr/bin:/bin", NCCL_SOCKET_IFNAME="eth0", OTHER="x"
    )
    assert found.program == str(script)
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.environment == {"NCCL_SOCKET_IFNAME": "eth0"}


def test_a_program_that_is_missing_is_told_apart_from_a_python_without_torch(tmp_path):
    assert ask(by_ssh(NodeCommand(program="no-such-program"))).program == ""
    bare = tmp_path / "python3"
    bare.symlink_to(shutil.which("python3", path="/usr/bin:/bin"))
    found = ask(by_ssh(NodeCommand(program=str(bare))))
    assert found.python
    assert found.torch or "torch" in found.trouble


def test_nccl_conf_of_the_user_counts(tmp_path):
    (tmp_path / ".nccl.conf").write_text("# mine\nNCCL_DEBUG=WARN\n")
    assert ask(by_ssh(NodeCommand(program="sh")), HOME=str(tmp_path)).environment["NCCL_DEBUG"] == "WARN"


def test_files_that_are_not_there_are_named(tmp_path):
    there = tmp_path / "train.py"
    there.touch()
    found = ask(by_ssh(NodeCommand(program="sh", files=[str(there), f"{tmp_path}/a b.py"])))
    assert found.missing == (f"{tmp_path}/a b.py",)
    assert found.program


@pytest.fixture
def everybodys():
    """A directory in which every user finds the files of the job; that of pytest is its own user's."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        yield folder


def asked_by_another(question):
    """Ask as a user without rights of its own."""
    who = {"user": "nobody"} if os.geteuid() == 0 else {}
    done = subprocess.run(
        question.words, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "HOME": "/"}, **who
    )
    return parse_survey(done.stdout)


@pytest.mark.parametrize(("mode", "kind"), [(0o000, "file"), (0o200, "file"), (0o644, "open")])
def test_a_file_that_the_user_may_not_read_is_named_with_its_owner(everybodys, mode, kind):
    script = everybodys / "a train.py"
    script.write_text("print()")
    script.chmod(mode)
    found = asked_by_another(by_ssh(NodeCommand(program="sh", files=[str(everybodys), str(script)])))
    assert found.closed == ((ClosedPath(str(script), script.owner(), is_directory=False),) if kind == "file" else ())
    assert (str(script) in found.checksums) is (kind == "open")
    assert not found.missing


def test_a_program_that_the_user_may_neither_run_nor_read_is_named_for_both(everybodys):
    program = everybodys / "train"
    program.touch()
    for mode in (0o000, 0o111, 0o444):
        program.chmod(mode)
        found = asked_by_another(by_ssh(NodeCommand(program=str(program))))
        assert (found.not_executable == str(program)) is (mode != 0o111), "a program need not be read to be run"
        assert bool(found.closed) is (mode == 0o000)


def test_a_directory_that_the_user_may_not_enter_is_named_in_place_of_all_in_it(everybodys):
    inner = everybodys / "job" / "code"
    inner.mkdir(parents=True)
    (inner / "train.py").touch()
    inner.parent.chmod(0o600)
    found = asked_by_another(
        by_ssh(NodeCommand(program="sh", files=[str(inner.parent), str(inner), str(inner / "train.py")]))
    )
    inner.parent.chmod(0o700)
    assert found.closed == (ClosedPath(str(inner.parent), inner.parent.owner(), is_directory=True),)
    assert not found.missing


def test_the_limits_are_those_of_the_session_itself():
    question = by_ssh(NodeCommand(program="sh"))
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 321 && exec "$@"', "sh", *question.words], capture_output=True, text=True, check=True
    )
    found = parse_survey(done.stdout)
    assert found.open_files == 321
    if shutil.which("df"):
        assert found.shm_bytes == shutil.disk_usage("/dev/shm").total
