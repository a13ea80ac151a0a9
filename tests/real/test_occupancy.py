"""What root alone sees, with the one rule that gpuops sudoers prints for it and the real sudo."""

import pathlib
import shutil
import subprocess

import pytest
from click.testing import CliRunner

from gpuops.cli import program
from gpuops.probes.nvidia.occupancy import Occupancy, occupancy

pytestmark = [
    pytest.mark.root("set sudo up"),
    pytest.mark.skipif(shutil.which("sudo") is None, reason="there is no sudo on this machine"),
]


@pytest.fixture
def printed_rules(account):
    """What gpuops sudoers prints, in place for the account."""
    path = pathlib.Path(f"/etc/sudoers.d/{account.name}-printed")
    path.write_text(CliRunner().invoke(program, ["sudoers", "--user", account.name]).stdout)
    path.chmod(0o440)
    subprocess.run(["visudo", "-cqf", path], check=True)
    yield
    path.unlink()


def test_without_a_rule_only_the_users_own_processes_are_known(sshd, node_of, connect):
    found = occupancy.read(connect(node_of(sshd)).run(occupancy.question))
    assert found.hidden


@pytest.mark.usefixtures("printed_rules")
def test_the_printed_rule_is_enough_and_is_for_this_question_alone(sshd, node_of, connect, account):
    transport = connect(node_of(sshd))
    answer = transport.run(occupancy.question)
    assert isinstance(occupancy.read(answer), Occupancy)
    assert "fd': Permission denied" not in answer.err, "root may list what every process has open"
    find = "find /proc -maxdepth 0"
    refused = subprocess.run(["runuser", "-u", account.name, "--", "sudo", "-n", *find.split()], check=False)
    assert refused.returncode == 1
