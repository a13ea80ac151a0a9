import contextlib
import os
import pathlib
import threading
import time

import pytest

from gpuops.errors import BecomeError, LostError
from gpuops.probes.nvidia.occupancy import occupancy
from gpuops.shell import Command

WORD = "open sesame"
ROOT = Command(("sh", "-c", "echo root=$STUB_ROOT; cat"), timeout_seconds=10, become="always")
REFUSED = Command(("sh", "-c", '[ -n "$STUB_ROOT" ] && echo seen || { echo no >&2; exit 1; }'), become="if-refused")


def test_the_password_goes_to_sudos_prompt_and_the_command_reads_nothing(user_node, sudo):
    answer = user_node(WORD).run(ROOT)
    assert (answer.exit, answer.out, answer.err) == (0, "root=yes\n", "")
    assert sudo.tried == WORD + "\n"


@pytest.mark.parametrize("password", [WORD, None])
def test_a_whole_script_runs_as_root(user_node, sudo, password):
    sudo.tell(mode="ask" if password else "nopasswd")
    line = "cd /usr && pwd && echo root=$STUB_ROOT; true | echo root=$STUB_ROOT"
    answer = user_node(password).run(Command(("sh", "-c", line), become="always"))
    assert answer.out == "/usr\nroot=yes\nroot=yes\n"


def test_the_commands_own_stdin_reaches_it_behind_the_password(user_node, sudo):
    command = Command(ROOT.words, become="always", stdin="first\nsecond\n" + "x" * 100_000)
    answer = user_node(WORD).run(command)
    assert answer.out == "root=yes\n" + command.stdin
    assert sudo.tried == WORD + "\n"


@pytest.mark.parametrize("password", [WORD, None])
def test_without_need_of_a_password_none_reaches_the_command(user_node, sudo, password):
    sudo.tell(mode="nopasswd")
    answer = user_node(password).run(Command(ROOT.words, become="always", stdin="mine\n"))
    assert answer.out == "root=yes\nmine\n"
    assert sudo.tried == ""


def test_a_command_that_prints_the_prompt_again_is_given_nothing(user_node):
    line = 'for _ in 1 2 3; do printf %s "$SUDO_PROMPT" >&2; printf "Password: " >&2; done; cat; echo end'
    answer = user_node(WORD).run(Command(("sh", "-c", line), timeout_seconds=10, become="always"))
    assert answer.out == "end\n"
    assert WORD not in answer.err


@pytest.mark.parametrize(
    "again", ["Sorry, try again.\n", "Just what do you think you're doing Dave?\n", "Erneut versuchen.\n", ""]
)
def test_a_wrong_password_is_tried_once_in_any_language(user_node, sudo, again):
    sudo.tell(again=again)
    node = user_node("wrong")
    with pytest.raises(BecomeError, match=r"sudo rejected the password, tried once") as caught:
        node.batch([ROOT, Command(("id",), become="always"), Command(("id",), become="if-refused"), REFUSED])
    assert caught.value.kind == "become"
    assert sudo.tried == "wrong\n"
    assert "wrong\n" not in str(caught.value)
    node.run(Command(("sh", "-c", "exit 1"), become="if-refused"))
    assert sudo.tried == "wrong\n"


def test_a_commands_stdin_is_never_tried_as_a_password(user_node, sudo):
    with pytest.raises(BecomeError):
        user_node("wrong").run(Command(("cat",), become="always", stdin="second\nthird\n"))
    assert sudo.tried == "wrong\n"


def test_who_may_not_use_sudo_hears_sudos_own_words(user_node, sudo):
    sudo.tell(mode="stranger")
    answer = user_node(WORD).run(ROOT)
    assert (answer.exit, answer.err) == (1, "me is not in the sudoers file.\n")
    assert sudo.tried == ""


def test_without_a_password_sudo_is_not_made_to_ask(user_node, sudo):
    answer = user_node().run(ROOT)
    assert (answer.exit, answer.err) == (1, "sudo: a password is required\n")
    assert sudo.tried == ""


def test_without_sudo_root_commands_end_and_others_go_on(user_node, sudo):
    (sudo.folder / "sudo").unlink()
    sudo.folder.joinpath("sudo").symlink_to("/nonexistent")
    fine, rooted = user_node().batch([Command(("echo", "hi")), Command(("/bin/echo", "x"), become="if-refused")])
    assert (fine.out, rooted.out) == ("hi\n", "x\n")


@pytest.mark.parametrize("password", [WORD, None])
def test_without_sudo_no_other_program_is_said_to_be_missing(user_node, sudo, password):
    sudo.remove()
    rooted, partial = user_node(password).batch([ROOT, occupancy.question])
    assert (rooted.exit, rooted.err) == (1, "sudo: not installed\n")
    found = occupancy.read(partial)
    assert found.hidden.startswith(("only root sees every process: ", "/proc hides the processes of other users"))


EITHER = Command(("sh", "-c", "echo root=$STUB_ROOT; exit 1"), become="if-possible")


@pytest.mark.parametrize(("mode", "out"), [("nopasswd", "root=yes\n"), ("ask", "root=\n"), ("stranger", "root=\n")])
def test_the_answer_of_root_counts_if_sudo_allows_it_whatever_its_exit_status(user_node, sudo, mode, out):
    sudo.tell(mode=mode)
    answer = user_node().run(EITHER)
    assert (answer.exit, answer.out) == (1, out)


def test_what_was_refused_is_asked_again_as_root(user_node, sudo):
    sudo.tell(mode="nopasswd")
    assert user_node().run(REFUSED).out == "seen\n"


def test_what_sudo_refuses_too_keeps_its_own_answer(user_node):
    answer = user_node().run(REFUSED)
    assert (answer.exit, answer.err) == (1, "no\n")


@pytest.mark.parametrize(
    "command",
    [
        Command(("true",), become="if-refused"),
        Command(("no-such-program-anywhere",), become="if-refused"),
        Command(("sleep", "60"), become="if-refused", timeout_seconds=0.2),
        Command(("sh", "-c", "exit 1")),
    ],
)
def test_sudo_is_left_alone_where_it_would_not_help(user_node, sudo, command):
    sudo.tell(mode="nopasswd")
    user_node().run(command)
    assert sudo.ran == ""


def test_other_words_may_be_run_as_root(user_node, sudo):
    sudo.tell(mode="nopasswd")
    answer = user_node().run(Command(("sh", "-c", "exit 1"), become="if-refused", root_words=("echo", "plain")))
    assert answer.out == "plain\n"
    assert sudo.ran == "echo plain\n"


def test_a_silent_sudo_is_ended_at_the_deadline(user_node, sudo):
    sudo.tell(mode="silent")
    answer = user_node(WORD).run(Command(("id",), become="always", timeout_seconds=0.5))
    assert answer.timed_out
    assert sudo.tried == ""


def test_no_process_shows_the_password_while_sudo_works(user_node, sudo):
    password = "Xyzzy-plugh-2718"
    sudo.tell(password=password)
    node = user_node(password)
    thread = threading.Thread(
        target=node.run, args=[Command(("sleep", "1.5"), become="always", timeout_seconds=10)], daemon=True
    )
    thread.start()
    scanned = set()
    while thread.is_alive():
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            if path.name == str(os.getpid()):
                continue
            for name in ("cmdline", "environ"):
                try:
                    text = (path / name).read_bytes()
                except OSError:
                    continue
                scanned.add(path.name)
                assert password.encode() not in text, (path, name)
        time.sleep(0.05)
    assert sudo.tried == password + "\n"
    assert len(scanned) > 2
    assert password not in sudo.seen
    assert password not in sudo.ran


def test_hanging_up_ends_a_root_command_too(user_node, sudo):
    sudo.tell(mode="nopasswd")
    node = user_node()
    noted = Command(("sh", "-c", "echo $$ >$SUDO_STUB/pid; exec sleep 60"), become="always", timeout_seconds=60)
    ended = []

    def work():
        with contextlib.suppress(LostError):
            ended.append(node.run(noted))

    thread = threading.Thread(target=work)
    thread.start()
    while not sudo.pid.strip():
        time.sleep(0.02)
    node.close()
    ends = time.monotonic() + 3
    while pathlib.Path("/proc", sudo.pid.strip()).exists() and time.monotonic() < ends:
        time.sleep(0.05)
    assert not pathlib.Path("/proc", sudo.pid.strip()).exists()
    thread.join(10)
    assert ended == []
