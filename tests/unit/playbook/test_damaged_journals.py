"""Damage in the journal of an earlier run, or an edit, is one sentence, and no run leaves a lock behind."""

import json

import pytest

from gpuops.errors import InputError
from gpuops.playbook import journal
from gpuops.playbook.provisioning import PlaybookRun

BOOK = "- hosts: all\n  tasks:\n    - {put: {key: a, value: '1'}, notify: restart}\n"
BOOK += "  handlers:\n    - {name: restart, act: {what: restart, kind: restart}}\n"


def only_journal(world):
    (path,) = world.folder.glob("runs/*/journal.jsonl")
    return path


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


DAMAGE = {
    "no JSON": b"\0\0\0\n",
    "no UTF-8": b"\xff\xfe\n",
    "a list": b"[]\n",
    "a number": b"7\n",
    "no event": b"{}\n",
    "an unknown event": b'{"event": "boom"}\n',
    "an event that is a list": b'{"event": []}\n',
    "a change without keys": b'{"event": "change", "id": 9}\n',
    "a change with another type": b'{"event": "change", "id": [], "node": 3, "step": 1, "kind": 1, "does": 1}\n',
    "an end of no change": b'{"event": "done", "id": 99, "good": true}\n',
    "a step without a handler": b'{"event": "step", "node": "n1"}\n',
    "a deep nesting": b'{"event": ' + b"[" * 100_000 + b"\n",
    "a long number": b'{"event": "done", "id": ' + b"9" * 5000 + b"}\n",
}


@pytest.fixture(params=DAMAGE)
def damaged(request, world):
    """A world with one finished run whose journal has a damaged line."""
    world.run(BOOK)
    path = only_journal(world)
    first, *rest = lines_of(path)
    path.write_bytes(first + DAMAGE[request.param] + b"".join(rest))
    return path


def test_run_goes_on_beside_a_damaged_journal_and_reports_it(damaged, world):
    notes = []
    world.last = world.prepare(BOOK)
    state = world.last.run(on_note=notes.append)
    assert state.exit_code(check=False) == 0
    assert [note for note in notes if f"{damaged}:2: " in note and "handlers" in note]
    assert not world.node.lock


def test_damaged_journal_is_one_sentence_for_every_reader(damaged, world):
    for read in (lambda: list(journal.read(damaged)), lambda: journal.failed(damaged), lambda: journal.verify(damaged)):
        with pytest.raises(InputError, match=r"journal\.jsonl:2: "):
            read()


def test_resume_refuses_a_journal_that_was_edited(world):
    world.run(BOOK)
    path = only_journal(world)
    path.write_bytes(path.read_bytes().replace(b'"step": "', b'"step": "x', 1))
    size = path.stat().st_size
    with pytest.raises(InputError, match="seal mismatch"):
        world.run(resume=path.parent.name)
    assert path.stat().st_size == size
    assert not world.node.lock


def test_resume_refuses_a_line_without_its_keys_even_if_it_is_sealed(world):
    world.run(BOOK)
    path = only_journal(world)
    log = journal.Journal(path.parent.parent, path.parent.name)
    log.write("change", id=7)
    log.close()
    with pytest.raises(InputError, match=r'journal\.jsonl:\d+: not a journal line: "change" without'):
        world.run(resume=path.parent.name)


def test_resume_reports_what_was_done_before(world):
    world.run(BOOK)
    run, notes = world.last.run_id, []
    world.last = world.prepare(None, resume=run)
    world.last.run(on_note=notes.append)
    assert f"run {run} continues: its journal has 1 change, of which 0 have an unknown outcome" in notes


def test_lock_is_released_when_anything_fails_after_it(world, monkeypatch):
    def broken(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr(PlaybookRun, "_pending_handlers", broken)
    with pytest.raises(RuntimeError):
        world.run(BOOK)
    assert not world.node.lock


@pytest.mark.parametrize("run", ["x" * 300, "a/b", "..", "a\0b", "", "é" * 200])
def test_name_that_no_run_can_have_is_one_sentence(tmp_path, run):
    with pytest.raises(InputError, match="no run"):
        journal.find(tmp_path, run)


def test_summaries_leave_out_a_damaged_journal_and_report_it(world):
    world.run(BOOK)
    bad = world.folder / "runs" / "20200101-000000-000000" / "journal.jsonl"
    bad.parent.mkdir()
    bad.write_text(json.dumps({"event": "run"}) + "\n")
    problems = []
    (one,) = journal.summaries(world.folder / "runs", problems.append)
    assert one.run == world.last.run_id
    assert str(problems[0]).startswith(f"{bad}:1: ")
