import json
import os
import subprocess
from dataclasses import replace

import pytest

from gpuops.document import Where
from gpuops.errors import LockedError, NodeError
from gpuops.inventory import Host
from gpuops.playbook import locking
from gpuops.playbook.locking import Owner, release, take
from gpuops.playbook.node_session import NodeSession
from gpuops.playbook.task import Machine, TaskRegistry
from gpuops.shell import Completed


class ThisMachine:
    def batch(self, questions):
        return [self.run(q) for q in questions]

    def run(self, command):
        done = subprocess.run(command.words, input=command.stdin, capture_output=True, text=True, check=False)
        return Completed("n1", command, done.returncode, done.stdout, done.stderr)


@pytest.fixture
def session(tmp_path, monkeypatch):
    """A node whose lock lies in a folder of the test's own, and whose shell is real."""
    monkeypatch.setattr(locking, "FOLDER", str(tmp_path / "run"))
    host = Host("n1", "n1", Where("i.yml"))
    return NodeSession(host, Machine("n1"), TaskRegistry(tmp_path), lambda _: ThisMachine(), journal=object())


ELSEWHERE = replace(Owner("other", "ops"), machine="elsewhere", who="ann")
GONE = replace(Owner("gone", "ops"), pid=2**22 + 1)


def owner_of(tmp_path):
    return json.loads((tmp_path / "run" / "lock" / "owner").read_text())["run"]


def test_a_lock_tells_who_holds_it_and_goes_with_its_run(session, tmp_path):
    take(session, Owner("mine", "ops"))
    assert owner_of(tmp_path) == "mine"
    release(session, Owner("other", "ops"))
    assert owner_of(tmp_path) == "mine"
    release(session, Owner("mine", "ops"))
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(
    ("holder", "advice"),
    [
        (Owner("other", "ops"), f"wait for process {os.getpid()}"),
        (GONE, "that run is dead; continue it with --resume gone, or take its lock with --break-lock"),
        (replace(Owner("gone", "ops"), boot_id="before"), "that run is dead; continue it with --resume gone"),
        (ELSEWHERE, "check whether it still runs; --break-lock takes a dead run's lock"),
    ],
    ids=["alive", "dead", "before a boot", "elsewhere"],
)
def test_the_second_is_told_who_is_first(session, tmp_path, holder, advice):
    take(session, holder)
    with pytest.raises(LockedError, match=f"n1 is locked by {holder.who} on {holder.machine}, run ") as told:
        take(session, Owner("mine", "ops"))
    assert advice in str(told.value)
    assert owner_of(tmp_path) == holder.run


@pytest.mark.parametrize(("holder", "taken"), [(GONE, True), (ELSEWHERE, True), (Owner("alive", "ops"), False)])
def test_only_the_lock_of_a_run_that_is_not_alive_can_be_broken(session, tmp_path, holder, taken):
    take(session, holder)
    if taken:
        take(session, Owner("mine", "ops"), break_dead=True)
    else:
        with pytest.raises(LockedError):
            take(session, Owner("mine", "ops"), break_dead=True)
    assert owner_of(tmp_path) == ("mine" if taken else holder.run)


def test_a_run_that_goes_on_takes_its_own_lock_once_its_first_process_is_dead(session):
    take(session, replace(GONE, run="mine"))
    take(session, Owner("mine", "ops"))
    with pytest.raises(LockedError):
        take(session, Owner("mine", "ops"))


def test_unreadable_lock_is_held_by_an_unknown_user(session, tmp_path):
    (tmp_path / "run" / "lock").mkdir(parents=True)
    (tmp_path / "run" / "lock" / "owner").write_text("{}")
    with pytest.raises(LockedError, match="n1 is locked by an unknown user"):
        take(session, Owner("mine", "ops"))


def test_of_many_at_once_one_gets_it(session, tmp_path):
    script = (locking._TAKE, "sh", str(tmp_path / "run"), "")
    crowd = [subprocess.Popen(["sh", "-c", *script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(12)]
    for number, process in enumerate(crowd):
        process.stdin.write(b'{"run": "%d"}' % number)
        process.stdin.close()
    codes = [process.wait(30) for process in crowd]
    for process in crowd:
        process.stdout.close()
    assert sorted(codes) == [0] + [75] * 11
    assert owner_of(tmp_path) == str(codes.index(0))
    assert len(list((tmp_path / "run").iterdir())) == 1


def test_a_node_that_cannot_be_locked_says_why(session, tmp_path):
    (tmp_path / "run").write_text("a file in the way")
    with pytest.raises(NodeError, match="cannot lock the node: mkdir: "):
        take(session, Owner("mine", "ops"))


def test_where_one_node_is_locked_none_is_changed_and_none_stays_locked(cluster):
    world = cluster("n1", "n2", "n3")
    world.nodes["n2"].lock = json.dumps({**vars(ELSEWHERE)})
    record = world.run("- hosts: all\n  tasks:\n    - put: {key: a, value: '1'}\n")
    assert record.exit_code(check=False) == 4
    assert "ann on elsewhere" in str(record.locked[0])
    assert [bool(node.lock) for node in world.nodes.values()] == [False, True, False]
    assert all(not node.done for node in world.nodes.values())
