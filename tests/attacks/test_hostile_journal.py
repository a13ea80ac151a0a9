"""A journal that was made or edited by somebody else: it wants to choose nodes, skip changes, or steer the terminal."""

import json
import os

import pytest
from tests.program import run_gpuops

from gpuops.playbook.journal import Journal

RUN = "20260101-000000-000000"
ESCAPES = "\x1b]0;owned\x07\x9b31m\u202e"
PLAYBOOK = "- {hosts: all, tasks: [{file: {path: LOOT, content: x}}]}\n"
INVENTORY = "all:\n  hosts:\n    n1: {ansible_host: 127.0.0.1, ansible_port: 1, ansible_user: x}\n"
WORDS = (
    ("journal", "verify", "-i", "prod.yml"),
    ("journal", "verify", RUN, "-i", "prod.yml"),
    ("provision", "play.yml", "-i", "prod.yml", "--resume", RUN),
    ("provision", "play.yml", "-i", "prod.yml", "--retry", RUN),
    ("provision", "play.yml", "-i", "prod.yml", "--check"),
)


@pytest.fixture
def folder(gpuops, loot):
    """Where the journals are, beside an inventory and a playbook that would write the loot."""
    (gpuops.project / "prod.yml").write_text(INVENTORY)
    (gpuops.project / "play.yml").write_text(PLAYBOOK.replace("LOOT", str(loot)))
    folder = gpuops.project / ".gpuops" / "runs"
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    return folder


@pytest.fixture
def forged(folder):
    """Writes a journal with all its seals: a line of each event, as ``changes`` say otherwise."""

    def write(**changes):
        lines = {
            "run": {"playbook": str(folder.parents[1] / "play.yml"), "who": "ops", "at": "2026-01-01T00:00:00+00:00"},
            "end": {"exit": 1, "failed": ["n1"], "stopped": ""},
        }
        journal = Journal(folder, RUN)
        for event, facts in lines.items():
            journal.write(event, **{**facts, **changes.get(event, {})})
        journal.close()
        return journal.path

    return write


@pytest.fixture
def calls(gpuops):
    """Calls every command that reads journals; returns exit codes by command, and all that was printed."""

    def run():
        done = {words: run_gpuops(*words, cwd=gpuops.project, timeout=30) for words in WORDS}
        printed = "".join(each.stdout + each.stderr for each in done.values())
        assert "Traceback" not in printed
        assert "bug in gpuops" not in printed
        assert not [c for c in printed if c in "\x1b\x07\x9b\u202e"]
        return {words[0] + words[-2]: each.returncode for words, each in done.items()}, printed

    return run


NODES = {
    "options": ["-oProxyCommand=touch loot", "$(touch loot)"],
    "paths": ["../../n1"],
    "escape sequences": [ESCAPES],
    "a file": ["@/etc/passwd"],
    "patterns": ["all", "*", "~."],
    "no text": [[], {}, 7],
}


@pytest.mark.parametrize("name", NODES)
def test_forged_journal_chooses_no_node_that_the_inventory_lacks(forged, calls, name):
    forged(end={"failed": NODES[name]})
    codes, printed = calls()
    assert codes["provision--retry"] == 2, printed
    assert codes["provision--resume"] == 2, printed


@pytest.mark.parametrize("first", [{"who": ESCAPES}, {"playbook": "/etc/passwd"}, {"playbook": ESCAPES}])
def test_forged_journal_of_another_run_is_not_resumed(forged, calls, first):
    forged(run=first)
    codes, printed = calls()
    assert codes["provision--resume"] == 2, printed


CONTENTS = {
    "no JSON": b"\0\xff\n",
    "ten million brackets": b"[" * 10_000_000 + b"\n",
    "a seal of another line": b'{"event": "run", "playbook": "p", "who": "w", "at": "a", "seal": "00"}\n',
}


@pytest.mark.parametrize("name", CONTENTS)
def test_damaged_journal_is_not_relied_on(folder, calls, name):
    (folder / RUN).mkdir(mode=0o700)
    (folder / RUN / "journal.jsonl").write_bytes(CONTENTS[name])
    codes, printed = calls()
    assert codes["provision--resume"] == 2, printed
    assert codes["provision--retry"] == 2, printed


def test_edited_journal_is_named(forged, calls):
    path = forged()
    path.write_bytes(path.read_bytes().replace(b'"ops"', b'"you"'))
    codes, printed = calls()
    assert codes["journal-i"] == 2
    assert codes["provision--resume"] == 2
    assert codes["provision--retry"] == 2
    assert f"{RUN}/journal.jsonl:1: seal mismatch" in printed


@pytest.mark.parametrize("kind", ["a pipe", "/dev/zero", "a link", "a directory"])
def test_what_is_no_file_is_neither_read_nor_followed(folder, calls, gpuops, kind):
    (folder / RUN).mkdir(mode=0o700)
    path = folder / RUN / "journal.jsonl"
    victim = gpuops.home / "victim"
    victim.write_text("mine\n")
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a directory":
        path.mkdir()
    else:
        path.symlink_to(victim if kind == "a link" else kind)
    codes, printed = calls()
    assert codes["provision--resume"] == 2, printed
    assert victim.read_text() == "mine\n"


def test_journal_of_a_folder_that_others_may_enter_is_not_resumed(forged, calls):
    path = forged()
    path.parent.chmod(0o777)
    codes, _ = calls()
    assert codes["provision--resume"] == 2


@pytest.mark.sampled
@pytest.mark.parametrize("run", ["../../../etc", "/etc", "..", ".", "-x", ESCAPES, "a\nb", "$(id)"])
def test_name_of_a_run_leads_nowhere(forged, refused, run):
    json.loads(forged().read_text().splitlines()[0])
    refused("provision", "play.yml", "-i", "prod.yml", f"--resume={run}")
    refused("provision", "play.yml", "-i", "prod.yml", f"--retry={run}")
