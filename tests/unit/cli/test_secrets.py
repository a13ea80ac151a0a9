"""A password in an inventory, and every byte that gpuops then prints or writes."""

import base64
import json
import os
import shlex

import pytest
from tests.program import run_gpuops

WORD = "Xyzzy-plugh 2718'"
FORMS = (WORD, base64.b64encode(WORD.encode()).decode(), shlex.quote(WORD), json.dumps(WORD)[1:-1])
INVENTORY = {
    "all": {
        "hosts": {"n1": {"ansible_connection": "local"}},
        "vars": {"ansible_password": WORD, "ansible_become_password": WORD, "bmc_password": WORD},
    }
}
PLAYBOOK = """\
- hosts: all
  tasks:
    - file: {{path: "{folder}/new", secret: !env GPUOPS_TEST_SECRET}}
    - file: {{path: "{folder}/secret", secret: !env GPUOPS_TEST_SECRET}}
"""
COMMANDS = {
    ("inventory", "list"): 0,
    ("inventory", "list", "--json"): 0,
    ("inventory", "check"): 0,
    ("-vv", "--debug", "run", "all", "--", "cat", "{folder}/secret"): 0,
    ("run", "all", "--json", "--", "sh", "-c", "base64 -w0 {folder}/plain; cat {folder}/secret >&2; exit 1"): 1,
    ("-vv", "validate", "--level", "quick", "-o", "r.json", "-o", "r.xml", "-o", "r.txt"): 3,
    ("facts", "--save", "saved"): 0,
    ("provision", "play.yml", "--check", "--diff"): 1,
    ("provision", "play.yml", "--check", "--json"): 1,
    ("runs", "show", "1", "--json"): 0,
    ("why", "n1"): 0,
}
"""Commands with the exit code of each."""


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "secret").write_text(" ".join(FORMS))
    (tmp_path / "plain").write_text(WORD)
    (folder / "prod.yml").write_text(json.dumps(INVENTORY))
    (folder / "play.yml").write_text(PLAYBOOK.format(folder=tmp_path))
    return folder


@pytest.mark.long
def test_password_is_written_nowhere(project, tmp_path):
    ours = {path for path in tmp_path.rglob("*") if path.is_file()}
    environment = {**os.environ, "HOME": str(tmp_path), "GPUOPS_TEST_SECRET": WORD, "GPUOPS_INVENTORY": "prod.yml"}
    seen = {}
    for words, code in COMMANDS.items():
        done = run_gpuops(*(word.format(folder=tmp_path) for word in words), cwd=project, env=environment)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        seen[words] = done.stdout + done.stderr
    made = {path for path in tmp_path.rglob("*") if path.is_file()} - ours
    assert {"r.json", "r.xml", "r.txt", "n1.json", "state.db"} <= {path.name for path in made}
    seen |= {path: path.read_bytes().decode("utf-8", "replace") for path in made}
    assert "*****" in seen["-vv", "--debug", "run", "all", "--", "cat", "{folder}/secret"]
    for where, text in seen.items():
        assert not [form for form in FORMS if form in text], where
