import json
import os
import stat

import pytest

from gpuops.errors import InputError, OutputError
from gpuops.playbook import journal
from gpuops.playbook.journal import Journal, changes, pending, pending_handlers, read
from gpuops.playbook.task import Change
from gpuops.shell import Command, Completed

CHANGE = Change("a = 1", Command(("put", "a", "1")))


@pytest.fixture
def log(tmp_path):
    made = Journal(tmp_path, "r1")
    yield made
    made.close()


def test_it_is_its_owners_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        Journal(tmp_path, "r1").close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "r1").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "r1" / "journal.jsonl").stat().st_mode) == 0o600


def test_a_line_is_on_the_disk_before_the_next_thing_happens(log, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(log.path.read_bytes().count(b"\n")))
    log.write("run", playbook="p", who="ops")
    number = log.begin("n1", "1.1", CHANGE, ["restart"])
    log.end(number, Completed("n1", CHANGE.command, 0, "well\n", seconds=1.5))
    assert synced == [1, 2, 3]
    _, begun, done = read(log.path)
    assert (begun["node"], begun["what"], begun["does"], begun["notify"]) == ("n1", "a = 1", "put a 1", ["restart"])
    assert (done["id"], done["good"], done["exit"], done["said"]) == (number, True, 0, "well")


def test_what_a_script_is_tells_two_apart_and_is_never_written(log):
    one, other = (Change("run x.sh", Command(("sh", "-s"), stdin=f"echo {n}"), kind="act") for n in (1, 2))
    assert journal.change_key(one) != journal.change_key(other)
    log.write("run", playbook="p", who="ops")
    log.begin("n1", "1.1", one)
    log.begin("n1", "1.2", Change("write f", Command(("put",), stdin="hunter22 hunter22")))
    _, first, second = read(log.path)
    assert first["does"].startswith("sh -s < sha256:")
    assert second["does"] == "put"
    assert b"echo 1" not in log.path.read_bytes()
    assert b"hunter22" not in log.path.read_bytes()


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_journal_that_cannot_be_written_stops_everything(log, monkeypatch, failing):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(
        OutputError, match=r"cannot write the journal \(No space left on device\); no further change is made"
    ):
        log.write("run")
    monkeypatch.undo()
    with pytest.raises(OutputError):
        log.write("run")


def test_a_run_whose_journal_breaks_makes_no_further_change(world, monkeypatch):
    write, count = os.write, iter(range(100))

    def full(descriptor, data):
        if next(count) == 4:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(journal.os, "write", full)
    with pytest.raises(OutputError, match="no further change is made"):
        world.run("- hosts: all\n  tasks:\n    - put: {key: a, value: '1'}\n    - put: {key: b, value: '1'}\n")
    assert world.node.done == ["put a 1"]
    assert world.node.lock == ""


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "r1").mkdir(mode=0o700)
    (tmp_path / "r1" / "journal.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="cannot open the journal"):
        Journal(tmp_path, "r1")


def line(event, **facts):
    return {"event": event, "handler": False, **facts}


def begun(number, step, kind="act", notify=(), node="n1"):
    return line("change", id=number, node=node, step=step, kind=kind, does="x", detach=False, notify=list(notify))


def test_what_was_begun_is_done_failed_or_unknown():
    found = changes([begun(1, "1.1"), line("done", id=1, good=True), begun(2, "1.2"), line("done", id=2, good=False),
                     begun(3, "1.3")])  # fmt: skip
    assert [(change.step, change.succeeded) for change in found] == [("1.1", True), ("1.2", False), ("1.3", None)]


def test_a_handler_that_ended_may_act_again():
    end = line("step", node="n1", step="h", name="restart", status="changed") | {"handler": True}
    assert changes([begun(1, "h"), line("done", id=1, good=True), end]) == []
    assert len(changes([begun(1, "h"), end | {"status": "failed"}])) == 1


def test_handlers_wait_until_they_ran():
    ran = line("step", node="n1", step="h", name="restart", status="changed") | {"handler": True}
    lines = [begun(1, "1.1", notify=["restart", "boot"]), begun(2, "1.1", notify=["restart"], node="n2"), ran]
    assert pending(lines) == {"n1": ["boot"], "n2": ["restart"]}
    assert pending([*lines, begun(3, "1.2", notify=["restart"])]) == {"n1": ["boot", "restart"], "n2": ["restart"]}
    assert pending([line("waiting", node="n1", notify=["boot"])]) == {"n1": ["boot"]}


def test_only_the_last_run_that_came_to_a_node_counts(tmp_path):
    for run, playbook, lines in (
        ("r1", "p", [begun(1, "1.1", notify=["restart"]), begun(2, "1.1", notify=["boot"], node="n2")]),
        ("r2", "other", [line("step", node="n1", step="1.1", name="x", status="ok", handler=False)]),
        ("r3", "p", [line("step", node="n2", step="1.1", name="x", status="ok", handler=False)]),
    ):
        (tmp_path / run).mkdir()
        text = "".join(json.dumps(entry) + "\n" for entry in [line("run", playbook=playbook, who="ops", at=""), *lines])
        (tmp_path / run / "journal.jsonl").write_text(text)
    assert pending_handlers(tmp_path, "p", pytest.fail) == {"n1": ["restart"]}


def sealed(tmp_path):
    """Return a journal of four lines that was resumed in the middle."""
    log = Journal(tmp_path, "r1")
    log.write("run", playbook="p", who="é")
    number = log.begin("é", "1.1", CHANGE)
    log.close()
    log = Journal(tmp_path, "r1")
    log.end(number)
    log.write("end", exit=0, failed=[])
    log.close()
    return tmp_path / "r1" / "journal.jsonl"


def test_a_journal_that_nobody_touched_is_verified_with_its_last_seal(tmp_path):
    path = sealed(tmp_path)
    last = [line["seal"] for line in read(path)][-1]
    assert journal.verify(path) == last
    with path.open("ab") as file:
        file.write(b'{"event": "cut off by a cra')
    assert journal.verify(path) == last
    Journal(tmp_path, "r1").close()
    assert journal.verify(path) == last


@pytest.mark.parametrize(
    ("edit", "number"),
    [
        (lambda lines: [lines[0], lines[1].replace(b"change", b"chance"), *lines[2:]], 2),
        (lambda lines: [lines[0], *lines[2:]], 2),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: [*lines[:3], b'{"event": "done"}', *lines[3:]], 4),
        (lambda lines: [lines[0].replace(b'", "seal"', b' ", "seal"'), *lines[1:]], 1),
    ],
    ids=["changed", "removed", "swapped", "added", "blank"],
)
def test_an_edit_is_seen(tmp_path, edit, number):
    path = sealed(tmp_path)
    path.write_bytes(b"\n".join([*edit(path.read_bytes().splitlines()), b""]))
    with pytest.raises(
        InputError, match=f"journal.jsonl:{number}: seal mismatch: this line or an earlier one was modified"
    ):
        journal.verify(path)


def test_lines_that_are_missing_at_the_end_show_in_the_last_seal(tmp_path):
    path = sealed(tmp_path)
    before = journal.verify(path)
    path.write_bytes(b"\n".join([*path.read_bytes().splitlines()[:-1], b""]))
    assert journal.verify(path) != before


def test_who_failed_in_a_run_is_known_when_it_came_to_its_end(cluster):
    world = cluster("n1", "n2", "n3", "n4")
    world.nodes["n2"].refuse.add("put a 1")
    world.nodes["n3"].unreachable = True
    text = "- hosts: all\n  tasks:\n    - put: {key: a, value: '1'}\n"
    world.run(text)
    path = journal.find(world.folder / "runs", world.last.run_id)
    assert journal.failed(path) == ["n2", "n3"]
    world.nodes["n3"].unreachable = False
    world.nodes["n2"].refuse.clear()
    world.run(resume=world.last.run_id)
    with pytest.raises(InputError, match="no node failed in that run"):
        journal.failed(path)
    path.write_bytes(path.read_bytes().rpartition(b'{"event": "end"')[0])
    with pytest.raises(InputError, match=f"that run is unfinished; continue it with --resume {world.last.run_id}"):
        journal.failed(path)
