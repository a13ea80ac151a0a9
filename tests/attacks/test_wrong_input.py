"""Wrong and hostile arguments and files: one sentence and exit 2, never 70, never a traceback, never without end."""

import base64
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

LONG = "x" * 300
ZERO = "/dev/zero"
INVENTORY = "all:\n  hosts:\n    gpu01: {ansible_connection: local}\n"

ARGUMENTS = {
    "a negative end of a range": ("inventory", "list", "-i", "prod.yml", "--limit", "gpu1[-1]"),
    "a range that is reversed": ("inventory", "list", "-i", "prod.yml", "--limit", "gpu[9-1]"),
    "an inventory of a long name": ("inventory", "list", "-i", LONG),
    "a limit of a long name": ("inventory", "list", "-i", "prod.yml", "--limit", f"@{LONG}"),
    "an endless limit": ("inventory", "list", "-i", "prod.yml", "--limit", f"@{ZERO}"),
    "an endless inventory": ("inventory", "list", "-i", ZERO),
    "endless variables": ("provision", "site", "-i", "prod.yml", "--check", "--extra-vars", f"@{ZERO}"),
    "an endless text": ("parse", "nvsmi_q", ZERO),
    "a run of a long name": ("provision", "site", "-i", "prod.yml", "--resume", LONG),
    "a retry of a long name": ("provision", "site", "-i", "prod.yml", "--retry", LONG),
    "a playbook of a long name": ("provision", LONG, "-i", "prod.yml", "--check"),
    "an include of a long name": ("provision", "include.yml", "-i", "prod.yml", "--check"),
    "facts of a long name": ("validate", "--from", LONG),
    "a report of a long name": ("validate", "-i", "prod.yml", "-o", f"{LONG}.json", "--no-save"),
    "a report in a long folder": ("validate", "-i", "prod.yml", "-o", f"{LONG}/x.json", "--no-save"),
    "a number beyond SQLite": ("diff", "99999999999999999999999", "1", "-i", "prod.yml"),
    "a run beyond SQLite": ("runs", "show", "99999999999999999999999", "-i", "prod.yml"),
    "a journal of a long name": ("journal", "verify", LONG, "-i", "prod.yml"),
    "facts of another time": ("validate", "--from", "facts"),
    "a template that is no text": ("targets", "list"),
}


READERS = (
    ("state", "list"),
    ("state", "show", "gpu01"),
    ("history", "gpu01"),
    ("runs", "list"),
    ("why", "gpu01"),
    ("diff",),
    ("runs", "show", "1"),
)
"""Commands that read the store."""


@pytest.fixture
def files(gpuops):
    folder = gpuops.project
    (folder / "prod.yml").write_text(INVENTORY)
    (folder / "include.yml").write_text(f"- include: {LONG}\n")
    (folder / "facts").mkdir()
    saved = {"schema": "gpuops.facts/1", "node": "gpu01", "taken_at": "0001-01-01T00:00:00+14:00", "answers": []}
    (folder / "facts" / "gpu01.json").write_text(json.dumps(saved))
    (folder / "templates").mkdir()
    (folder / "templates" / "own.j2").write_bytes(b"\xff\xfe")
    return folder


@pytest.mark.sampled
@pytest.mark.parametrize("name", ARGUMENTS)
def test_wrong_argument_is_one_sentence(refused, files, name):
    said = refused(*ARGUMENTS[name], timeout=30)
    assert len(said.splitlines()) == 1
    assert "bug in gpuops" not in said


def test_damaged_row_of_the_store_is_one_sentence(gpuops, files):
    folder = files / ".gpuops"
    assert gpuops("state", "set", "gpu01", "broken", "--reason", "x", "-i", "prod.yml").returncode in (0, 2)
    assert gpuops("validate", "-i", "prod.yml", "--level", "quick").returncode in (0, 1, 3)
    database = sqlite3.connect(folder / "state.db")
    columns = [
        (table, name)
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for _, name, *_ in database.execute(f"PRAGMA table_info({table})").fetchall()
        if name
        in ("at", "fingerprint", "checks", "began", "first_at", "last_at", "figures", "names", "content", "shape")
    ]
    database.execute("INSERT INTO runs VALUES ('r9', 'x', 'x', 'x', 'x')")
    database.execute(
        "INSERT INTO events (node, state, why, run, at, fingerprint) VALUES ('gpu01', 'x', 'x', 'r9', 'zz', 'x')"
    )
    for table, name in columns:
        database.execute(f"UPDATE OR IGNORE {table} SET {name} = 'zz'")
    database.commit()
    for words in READERS:
        done = gpuops(*words, "-i", "prod.yml")
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), (words, done.stdout, done.stderr)


def test_known_hosts_with_keys_beyond_ascii_is_read(gpuops, files):
    good = base64.b64encode(b"\0\0\0\x0bssh-ed25519").decode()
    known = f"192.0.2.1 ssh-ed25519 é{good}\n192.0.2.1 ssh-ed25519 {good}\n|1|é|é ssh-rsa é\n"
    (gpuops.home / ".ssh" / "known_hosts").write_text(known)
    (files / "prod.yml").write_text("all:\n  hosts:\n    n1: {ansible_host: 192.0.2.1, ansible_user: x}\n")
    done = gpuops("ping", "-i", "prod.yml", "--connect-timeout", "1")
    assert done.returncode != 70, done.stderr


def test_full_standard_output_is_one_sentence(files, gpuops):
    for words in (
        ("checks", "list"),
        ("checks", "list", "--json"),
        ("inventory", "list", "-i", "prod.yml"),
        ("--help",),
    ):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "gpuops", *words],
                cwd=files,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 2, (words, done.stderr)
        assert done.stderr.splitlines() == ["gpuops: cannot write to standard output: No space left on device"]
