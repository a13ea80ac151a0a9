"""The real sudo, where root may set it up for the account that logs in."""

import pathlib
import shutil
import subprocess
import threading
import time

import pytest

from gpuops.errors import BecomeError, NodeError
from gpuops.secret import Secret
from gpuops.shell import Command

WHO = Command(("sh", "-c", "id -u; cat"), timeout_seconds=20, become="always", stdin="mine\n")
pytestmark = [
    pytest.mark.root("set sudo up"),
    pytest.mark.skipif(shutil.which("sudo") is None, reason="there is no sudo on this machine"),
]


@pytest.fixture
def allow(account):
    """Writes a rule of sudoers for the account."""
    path = pathlib.Path(f"/etc/sudoers.d/{account.name}")

    def write(rule):
        path.write_text(f"{account.name} ALL=(ALL:ALL) {rule}\nDefaults:{account.name} !syslog\n")
        path.chmod(0o440)
        subprocess.run(["visudo", "-cqf", path], check=True)

    yield write
    path.unlink(missing_ok=True)


def test_the_password_makes_root(sshd, node_of, connect, allow, account):
    allow("ALL")
    transport = connect(node_of(sshd, become_password=Secret(account.password)))
    answers = transport.batch([WHO, Command(("id", "-u")), Command(("id", "-u"), become="always")])
    assert [a.out for a in answers] == ["0\nmine\n", f"{account.uid}\n", "0\n"]
    assert [a.err for a in answers] == ["", "", ""]


@pytest.mark.parametrize("password", [True, False])
def test_nopasswd_makes_root_and_hands_no_password_on(sshd, node_of, connect, allow, account, password):
    allow("NOPASSWD: ALL")
    secret = Secret(account.password) if password else None
    assert connect(node_of(sshd, become_password=secret)).run(WHO).out == "0\nmine\n"


def test_one_rule_for_one_program_is_enough(sshd, node_of, connect, allow):
    allow("NOPASSWD: /usr/bin/id")
    transport = connect(node_of(sshd))
    assert transport.run(Command(("id", "-u"), become="always")).out == "0\n"
    refused = transport.run(Command(("cat", "/etc/shadow"), become="if-refused"))
    assert refused.exit == 1
    assert "Permission denied" in refused.err


def test_a_wrong_password_is_one_try(sshd, node_of, connect, allow, account):
    allow("ALL")
    transport = connect(node_of(sshd, become_password=Secret("wrong")))
    with pytest.raises(BecomeError, match="sudo rejected the password"):
        transport.batch([WHO, WHO])


def test_without_a_password_sudo_says_so_at_once(sshd, node_of, connect, allow):
    allow("ALL")
    answer = connect(node_of(sshd)).run(WHO)
    assert answer.exit == 1
    assert "password is required" in answer.err


@pytest.mark.parametrize("rule", ["ALL", "NOPASSWD: ALL"])
def test_a_root_command_over_its_time_is_ended(sshd, node_of, connect, allow, account, rule):
    allow(rule)
    transport = connect(node_of(sshd, become_password=Secret(account.password)))
    answer = transport.run(Command(("sleep", "512"), timeout_seconds=3, become="always"))
    assert answer.timed_out
    assert gone("sleep 512")


@pytest.mark.parametrize("rule", ["ALL", "NOPASSWD: ALL"])
def test_hanging_up_ends_a_root_command(sshd, node_of, connect, allow, account, rule):
    allow(rule)
    transport = connect(node_of(sshd, become_password=Secret(account.password)))

    def work():
        with pytest.raises(NodeError):
            transport.run(Command(("sleep", "513"), timeout_seconds=60, become="always"))

    thread = threading.Thread(target=work)
    thread.start()
    while not running("sleep 513"):
        time.sleep(0.05)
    transport.close()
    thread.join(10)
    assert gone("sleep 513")


def running(args):
    said = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    return args in said.splitlines()


def gone(args, seconds=5.0):
    ends = time.monotonic() + seconds
    while running(args) and time.monotonic() < ends:
        time.sleep(0.05)
    return not running(args)
