import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gpuops.document import Where
from gpuops.errors import LockedError, NodeError
from gpuops.inventory import Host
from gpuops.playbook import locking
from gpuops.playbook.locking import Owner, release, take, tell
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


NOBODY = 2**22 + 1  # above the kernel's limit
ELSEWHERE = replace(Owner("other", "ops"), machine="elsewhere", boot_id="its own", who="ann")
CONTAINER = replace(Owner("other", "ops"), machine="pod-7", namespaces="pid:[1] time:[2]", pid=NOBODY)
GONE = replace(Owner("gone", "ops"), pid=NOBODY)
REUSED = replace(Owner("gone", "ops"), started=Owner("gone", "ops").started - 1)
REBOOTED = replace(GONE, boot_id="before")
ALIVE = Owner("alive", "ops")
OLD_FIELDS = {"run": "old", "who": "ops", "machine": ALIVE.machine, "since": "then", "boot_id": ALIVE.boot_id}


def owner_of(tmp_path):
    (file,) = (tmp_path / "run" / "lock").iterdir()
    return json.loads(file.read_text())["run"]


def test_a_lock_tells_who_holds_it_and_goes_with_its_run(session, tmp_path):
    assert take(session, ALIVE) is None
    assert owner_of(tmp_path) == "alive"
    release(session, Owner("other", "ops"))
    assert owner_of(tmp_path) == "alive"
    release(session, ALIVE)
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("holder", [GONE, REUSED], ids=["no such process", "another process with its number"])
def test_the_lock_of_a_dead_process_is_taken_over(session, tmp_path, holder):
    take(session, holder)
    taken = take(session, Owner("mine", "ops"))
    assert taken.holder == holder
    assert owner_of(tmp_path) == "mine"
    (line,) = tell({"n1": taken})
    assert line == f"took over the lock of n1 from {holder}: its process has ended"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


def test_a_process_that_was_killed_and_not_waited_for_is_dead(session):
    child = subprocess.Popen(["sleep", "60"])
    holder = replace(Owner("killed", "ops"), pid=child.pid, started=locking._start_of(child.pid))
    assert (holder.alive, holder.dead) == (True, False)
    child.send_signal(signal.SIGKILL)
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        pass
    assert (holder.alive, holder.dead) == (False, True)
    child.wait()


BREAK = "has ended, run this command again with --break-lock"


@pytest.mark.parametrize(
    ("holder", "advice"),
    [
        (ALIVE, f"wait for process {os.getpid()}"),
        (REBOOTED, "that run is dead; continue it with --resume gone, or take its lock with --break-lock"),
        (ELSEWHERE, f"if process {os.getpid()} on elsewhere {BREAK}"),
        (replace(ELSEWHERE, pid=NOBODY), f"if process {NOBODY} on elsewhere {BREAK}"),
        (CONTAINER, f"if process {NOBODY} in another container {BREAK}"),
        (replace(CONTAINER, machine=ALIVE.machine), f"if process {NOBODY} in another container {BREAK}"),
        (replace(GONE, started=0), "that run is dead; continue it with --resume gone"),
        (replace(GONE, namespaces=""), "that run is dead; continue it with --resume gone"),
        (replace(GONE, boot_id=""), "that run is dead; continue it with --resume gone"),
    ],
    ids=["alive", "before a boot", "elsewhere", "elsewhere, nobody here", "container", "container of this name",
         "old: no start", "old: no namespace", "no boot ID"],
)  # fmt: skip
def test_who_is_not_proved_dead_keeps_the_lock_and_the_second_is_told(session, tmp_path, holder, advice):
    take(session, holder)
    with pytest.raises(LockedError, match=f"n1 is locked by {holder.who} on {holder.machine}, run ") as told:
        take(session, Owner("mine", "ops"))
    assert advice in str(told.value)
    assert f"since {holder.since}; " in str(told.value)
    assert owner_of(tmp_path) == holder.run


@pytest.mark.parametrize("holder", [ELSEWHERE, CONTAINER, REBOOTED, ALIVE], ids=lambda holder: holder.machine)
def test_only_the_lock_of_a_run_that_is_not_alive_can_be_broken(session, tmp_path, holder):
    take(session, holder)
    if holder is ALIVE:
        with pytest.raises(LockedError):
            take(session, Owner("mine", "ops"), break_dead=True)
    else:
        assert list(tell({"n1": take(session, Owner("mine", "ops"), break_dead=True)})) == [
            f"took over the lock of n1 from {holder}"
        ]
    assert owner_of(tmp_path) == ("alive" if holder is ALIVE else "mine")


def test_a_run_that_goes_on_takes_its_own_lock_once_its_first_process_is_dead(session):
    take(session, replace(REBOOTED, run="mine"))
    take(session, Owner("mine", "ops"))
    with pytest.raises(LockedError):
        take(session, Owner("mine", "ops"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "an unknown user"),
        ('{"pid": -1}', "an unknown user"),
        (json.dumps({**asdict(GONE), "pid": 10**30}), "an unknown user"),
        (json.dumps({**OLD_FIELDS, "pid": os.getpid()}), f"wait for process {os.getpid()}"),
        (json.dumps({**OLD_FIELDS, "pid": NOBODY}), "continue it with --resume old"),
        (json.dumps({**OLD_FIELDS, "pid": 2**40}), "continue it with --resume old"),
    ],
    ids=["empty", "no process", "too large", "old version, alive", "old version, dead", "no such number"],
)
def test_locks_of_other_versions_are_never_taken_over_by_themselves(session, tmp_path, text, told):
    lock = tmp_path / "run" / "lock"
    lock.mkdir(parents=True)
    (lock / "owner").write_text(text)
    with pytest.raises(LockedError, match=told):
        take(session, Owner("mine", "ops"))
    if "wait for" not in told:
        take(session, Owner("mine", "ops"), break_dead=True)
        assert owner_of(tmp_path) == "mine"


def crowd_of(tmp_path, count, instead):
    """Start so many that take the lock at once; return who got it."""
    words = ["sh", "-c", locking._TAKE, "sh", str(tmp_path / "run")]
    crowd = [
        subprocess.Popen([*words, f"owner-{number}", instead], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number in range(count)
    ]
    for number, process in enumerate(crowd):
        process.stdin.write(b'{"run": "%d"}' % number)
        process.stdin.close()
    codes = [process.wait(30) for process in crowd]
    for process in crowd:
        process.stdout.close()
    assert sorted(codes) == [0] + [75] * (count - 1)
    return str(codes.index(0))


@pytest.mark.parametrize("instead", ["", "owner-dead"], ids=["nobodys", "dead-runs"])
def test_of_many_at_once_one_gets_it(session, tmp_path, instead):
    for _ in range(3 if instead else 1):
        if instead:
            lock = tmp_path / "run" / "lock"
            lock.mkdir(parents=True)
            (lock / instead).write_text("{}")
        assert crowd_of(tmp_path, 12, instead) == owner_of(tmp_path)
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]
        (path,) = (tmp_path / "run" / "lock").iterdir()
        path.unlink()
        (tmp_path / "run" / "lock").rmdir()


def test_who_comes_late_does_not_take_over_from_who_took_over(session, tmp_path):
    take(session, GONE)
    take(session, ALIVE)
    file, holder = locking._try_lock(session, Owner("late", "ops"), instead=GONE.file)
    assert (file, holder) == (ALIVE.file, ALIVE)


def test_who_dies_while_taking_over_leaves_nothing_that_needs_a_person(session, tmp_path):
    take(session, GONE)
    stops_before_rename = locking._TAKE.replace("for attempt in", "kill -9 $$; for attempt in")
    words = ["sh", "-c", stops_before_rename, "sh", str(tmp_path / "run"), "owner-died", GONE.file]
    assert subprocess.run(words, input=b"{}", check=False).returncode == -signal.SIGKILL
    assert len(list((tmp_path / "run").iterdir())) == 3
    assert take(session, ALIVE) is None
    for path in (tmp_path / "run").glob("lock.*"):
        os.utime(path, (0, 0))
    release(session, ALIVE)
    take(session, ALIVE)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


def test_what_a_lock_tells_about_a_process_is_what_another_process_reads():
    code = "from gpuops.playbook.locking import Owner; import json, dataclasses, sys; print(Owner('r', 'ops').started)"
    own = subprocess.run(["sh", "-c", f"{sys.executable} -c \"{code}\"; cut -d' ' -f22 /proc/self/stat"],
                         capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    assert int(own[0]) <= int(own[1]) <= int(own[0]) + 60 * os.sysconf("SC_CLK_TCK")


def test_half_of_an_owner_is_no_lock(session, tmp_path):
    words = ["sh", "-c", locking._TAKE, "sh", str(tmp_path / "run"), "owner-half", ""]
    assert subprocess.run(words, input=b'{"run": "half', check=False).returncode == 1
    assert list((tmp_path / "run").iterdir()) == []


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
