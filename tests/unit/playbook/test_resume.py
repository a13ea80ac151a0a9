"""A run that is killed at any moment goes on with --resume: every moment around every line of its journal is tried."""

import contextlib
from dataclasses import replace

import pytest

from gpuops.errors import InputError, LockedError
from gpuops.fleet import Outcome, Outcomes
from gpuops.playbook import locking, running
from gpuops.playbook.journal import Journal

PLAYBOOK = """\
- hosts: all
  tasks:
    - {put: {key: a, value: '1'}, notify: restart}
    - act: {what: format}
    - put: {key: b, value: '1', detach: true}
    - reboot: {reason: a new driver}
    - both: {first: c, second: d}
    - {put: {key: e, value: '1'}, notify: again}
  handlers:
    - {name: restart, act: {what: restart, kind: restart}}
    - {name: again, act: {what: again, kind: rebuild}}
"""
STATE = dict.fromkeys("abcde", "1")


class Killed(BaseException):
    """What SIGKILL is to the program: nothing of it goes on."""


@pytest.fixture
def dying(world, monkeypatch):
    """Runs the playbook and kills it before or after its ``number``-th journal line reaches the disk."""
    write, batch = Journal.write, type(world.node).batch
    state = {"left": 0, "before": False, "dead": False}

    def mortal_write(self, event, **facts):
        state["left"] -= 1
        if state["left"] == 0 and state["before"]:
            state["dead"] = True
            raise Killed
        write(self, event, **facts)
        if state["left"] == 0:
            state["dead"] = True
            raise Killed

    def mortal_batch(self, questions):
        if state["dead"]:
            raise Killed  # a dead program unlocks nothing
        return batch(self, questions)

    def one_by_one(hosts, work, **_):
        return Outcomes(Outcome(host.name, value=work(host)) for host in hosts)

    monkeypatch.setattr(Journal, "write", mortal_write)
    monkeypatch.setattr(type(world.node), "batch", mortal_batch)
    monkeypatch.setattr(running, "each", one_by_one)
    monkeypatch.setattr(locking.Owner, "alive", property(lambda self: False))
    monkeypatch.setattr(locking.Owner, "dead", property(lambda self: True))

    def dying(number, *, before):
        state.update(left=number, before=before, dead=False)
        with contextlib.suppress(Killed):
            world.run(PLAYBOOK)
        state.update(left=0, dead=False)
        return world.last.run_id

    return dying


LINES = 28
"""As many as a whole run of the playbook writes; the first test below holds it to that."""


def test_how_many_lines_there_are(world):
    world.run(PLAYBOOK)
    (path,) = world.folder.glob("runs/*/journal.jsonl")
    assert len(path.read_text().splitlines()) == LINES
    assert world.node.done == [
        "put a 1", "act format", "put b 1", "reboot", "put c 1", "put d 1", "put e 1", "act restart", "act again",
    ]  # fmt: skip


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, LINES + 1))
def test_a_run_that_was_killed_comes_to_the_same_end(world, dying, number, before):
    run = dying(number, before=before)
    if number == 1 and before:
        return  # there is nothing yet to resume
    done = list(world.node.done)
    record = world.run(resume=run)
    unknown = [r for r in record.results if r.status == "needs_operator"]
    if unknown:
        assert [r.name for r in unknown] == ["act"]
        assert world.node.done == done
        assert record.exit_code(check=False) == 3
        return
    assert record.exit_code(check=False) == 0
    assert world.node.settings == STATE
    assert world.node.lock == ""
    assert world.node.units == {}
    for once in ("act format", "put a 1", "put b 1", "put c 1", "put d 1", "put e 1", "reboot"):
        assert world.node.done.count(once) == 1, once
    for repeatable in ("act restart", "act again"):
        assert world.node.done.count(repeatable) in (1, 2), repeatable


def test_only_what_is_never_repeated_can_end_with_a_question_to_a_person(world, dying):
    asked = []
    for before in (True, False):
        for number in range(2, LINES + 1):
            world.nodes["n1"] = type(world.node)("n1")
            world.order = replace(world.order, runs=world.folder / f"runs-{number}-{before}")
            run = dying(number, before=before)
            if any(r.status == "needs_operator" for r in world.run(resume=run).results):
                asked.append((number, before))
    assert asked == [(6, True), (5, False)]  # its first line is on the disk, its second is not


def test_a_handler_that_was_notified_before_the_kill_runs_after_it(world, dying):
    run = dying(4, before=False)  # the line that says that a = 1 is made
    assert world.node.done == ["put a 1"]
    world.run(resume=run)
    assert "act restart" in world.node.done


def test_a_handler_that_another_run_saw_to_meanwhile_does_not_run_again(world):
    world.node.refuse.add("put e 1")
    world.run(PLAYBOOK)
    broken = world.last.run_id
    assert "act restart" not in world.node.done
    world.node.refuse.clear()
    world.run()
    world.run(resume=broken)
    assert world.node.done.count("act restart") == 1


def test_what_changed_since_then_is_named_and_not_resumed(world):
    world.node.refuse.add("put b 1")
    world.run(PLAYBOOK)
    run = world.last.run_id
    world.write(PLAYBOOK.replace("format", "wipe"))
    with pytest.raises(InputError, match=rf"cannot resume run {run}: changed since it started: {world.folder}/p.yml"):
        world.run(resume=run)
    world.write(PLAYBOOK)
    with pytest.raises(InputError, match="changed since it started: the version of gpuops"):
        world.run(resume=run, version="2.0")
    host = world.hosts["n1"]
    with pytest.raises(InputError, match="changed since it started: the inventory, --limit or --retry"):
        world.run(resume=run, hosts=[type(host)("n2", "n2", host.origin)])
    assert world.run(resume=run).exit_code(check=False) == 1


def test_a_run_that_never_was_is_refused(world):
    with pytest.raises(InputError, match="no run nothing in "):
        world.run(PLAYBOOK, resume="nothing")


def test_a_torn_last_line_says_nothing(world, dying):
    run = dying(4, before=False)
    (path,) = world.folder.glob("runs/*/journal.jsonl")
    path.write_bytes(path.read_bytes() + b'{"event": "change", "id": 9')
    assert world.run(resume=run).exit_code(check=False) == 0
    assert b'"id": 9{' not in path.read_bytes()


def test_an_edited_journal_is_not_resumed(world, dying):
    run = dying(6, before=False)
    (path,) = world.folder.glob("runs/*/journal.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"oops\n", *lines[1:]]))
    with pytest.raises(InputError, match=r"journal.jsonl:2: seal mismatch"):
        world.run(resume=run)


def test_a_run_that_is_alive_is_not_resumed(world):
    held = world.prepare(PLAYBOOK)
    session = held._sessions["n1"]
    session.journal = object()
    locking.take(session, locking.Owner(held.run_id, "ops"))
    Journal(world.folder / "runs", held.run_id).close()
    record = world.run(resume=held.run_id)
    assert [type(error) for error in record.locked] == [LockedError]
    assert record.exit_code(check=False) == 4
    assert world.node.done == []


COMMANDS = ("put a 1", "act format", "put b 1", "put c 1", "put d 1", "put e 1", "act restart", "act again")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", ["refused", "lost before", "lost after"])
def test_a_command_that_fails_or_is_lost_can_be_gone_on_from(world, command, how):
    do = type(world.node).do

    def failing(node, words):
        if " ".join(words) == command:
            type(node).do = do
            if how == "refused":
                return 1, "", "refused"
            node.lose = how.removeprefix("lost ")
        return do(node, words)

    type(world.node).do = failing
    try:
        first = world.run(PLAYBOOK)
    finally:
        type(world.node).do = do
    assert first.exit_code(check=False) == (1 if how == "refused" else 3)
    record = world.run(resume=world.last.run_id)
    if command == "act format" and how != "refused":
        assert [r.status for r in record.results][-1] == "needs_operator"
        assert world.node.done.count("act format") == (how == "lost after")
        return
    assert record.exit_code(check=False) == 0
    assert world.node.settings == STATE
    assert world.node.done.count("act format") == 1
    assert {"act restart", "act again"} <= set(world.node.done)
