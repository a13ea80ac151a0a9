import os
import shutil
import sys

import pytest

from gpuops.errors import LostError
from gpuops.shell import Command, Files, read_files

QUESTIONS = [
    Command(("echo", "it's", '"$HOME"', "a\\b", "!x", "*")),
    Command(("sh", "-c", "echo out; echo oh >&2; exit 3")),
    Command(("cat",), stdin="a'b\"c\\n%s\n$x\té\n\n"),
    Files(
        ("/proc/sys/kernel/hostname", "/proc/sys/kernel/os*", "/sys/class/net/lo", "/sys/class/net/lo/*a*", "/none*")
    ),
    Command(("sleep", "30"), timeout_seconds=1),
    Command(("no-such-program-anywhere",)),
]
EXPECTED = 'it\'s "$HOME" a\\b !x *\n'


def check(answers, *, apart):
    echo, both, cat, files, slept, missing = answers
    assert (echo.exit, echo.out) == (0, EXPECTED)
    assert (both.exit, both.out) == (3, "out\n" if apart else "out\noh\n")
    assert cat.out == QUESTIONS[2].stdin
    assert slept.timed_out
    assert missing.exit == 127
    found = read_files(files.out)
    assert found["/proc/sys/kernel/hostname"] == os.uname().nodename + "\n"
    assert found["/proc/sys/kernel/ostype"] == "Linux\n"
    assert "/" in found["/sys/class/net/lo"]
    assert found["/sys/class/net/lo/address"].strip() == "00:00:00:00:00:00"
    assert not [path for path in found if path.startswith("/none")]


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "csh", "tcsh", "fish", "zsh", "ksh", "busybox"])
def test_it_starts_under_every_login_shell_of_this_machine(shell_node, shell):
    if shutil.which(shell) is None:
        optional = "optional: " if shell in ("zsh", "ksh", "busybox") else ""
        pytest.skip(f"{optional}there is no {shell} on this machine")
    node = shell_node(shell, "sh") if shell == "busybox" else shell_node(shell)
    check(node.batch(QUESTIONS), apart=True)


@pytest.mark.parametrize("shell", ["sh", "bash", "tcsh", "fish"])
def test_without_python_a_plain_shell_brings_the_same_answers(shell_node, no_python, shell):
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell} on this machine")
    node = shell_node(path, before=no_python)
    check(node.batch(QUESTIONS), apart=False)
    assert node.run(Command(("echo", "again"))).out == "again\n"


def test_without_python_a_program_that_hangs_is_not_asked_again_in_its_lane(shell_node, no_python):
    hung = [Command(("sleep", f"60.{n}"), timeout_seconds=1, lane="nvidia") for n in range(3)]
    others = [Command(("echo", "hi"), lane="nvidia"), Command(("sleep", "0.01"), timeout_seconds=20)]
    first, *again, echo, outside = shell_node(before=no_python).batch([*hung, *others])
    assert (first.timed_out, first.not_asked) == (True, False)
    assert [(answer.timed_out, answer.not_asked) for answer in again] == [(True, True)] * 2
    assert (echo.out, outside.exit) == ("hi\n", 0)


def test_the_files_of_a_node_are_the_same_with_and_without_python(shell_node, no_python, tmp_path):
    (tmp_path / "one").write_bytes(b"a\n\n")
    (tmp_path / "two").write_bytes(b"no newline")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / ".hidden").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    asked = [Files((f"{tmp_path}/*", f"{tmp_path}/*o*", "/sys/class/net/*/speed", "/sys/class/net/*/operstate"))]
    found = read_files(shell_node().batch(asked)[0].out)
    assert found[f"{tmp_path}/one"] == "a\n\n"
    assert read_files(shell_node(before=no_python).batch(asked)[0].out) == found


def test_without_python_files_can_be_put_and_read(shell_node, no_python, tmp_path):
    node, data = shell_node(before=no_python), bytes(range(256)) * 20
    node.put(data, f"{tmp_path}/file", 0o640)
    assert (tmp_path / "file").read_bytes() == data
    assert node.get(f"{tmp_path}/file") == data


@pytest.mark.parametrize("script", ["exit 1", "echo oh; exit 0", "kill -9 $$"])
def test_a_broken_python_is_as_none(shell_node, no_python, tmp_path, script):
    broken = tmp_path / "bin" / "python3"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    assert shell_node(before=no_python).run(Command(("echo", "hi"))).out == "hi\n"


def test_the_inventorys_python_is_taken_first(shell_node):
    node = shell_node(python=sys.executable)
    assert (
        node.run(Command(("sh", "-c", "tr '\\0' '\\n' </proc/$PPID/cmdline | head -1"))).out.strip() == sys.executable
    )


def test_the_agent_is_told_from_what_shells_print(shell_node, tmp_path):
    noisy = tmp_path / "noisy"
    noisy.write_text('#!/bin/sh\nprintf "MOTD \\377\\0\\033[1m"; echo "$@"; echo error >&2\nexec /bin/sh "$@"\n')
    noisy.chmod(0o755)
    assert shell_node(str(noisy)).run(Command(("echo", "hi"))).out == "hi\n"
    assert shell_node(str(noisy), before=["env", "SHELLOPTS=xtrace"]).run(Command(("echo", "hi"))).out == "hi\n"


def test_a_login_that_is_not_allowed_says_what_it_said(shell_node):
    with pytest.raises(LostError, match="exited without an answer: This account is currently not available"):
        shell_node("/usr/sbin/nologin").run(Command(("echo", "hi")))


def test_nothing_runs_in_a_home_that_may_hang(shell_node, tmp_path):
    node = shell_node(before=["env", "-C", str(tmp_path), f"HOME={tmp_path}"])
    assert node.run(Command(("pwd",))).out == "/\n"
    assert not list(tmp_path.iterdir())
