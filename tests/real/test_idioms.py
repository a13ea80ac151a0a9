"""The table for users of Ansible in docs/playbooks.md: its rows are one playbook, run as root on this very machine."""

import json
import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs" / "playbooks.md"
PROGRAM = "from gpuops.cli import main; main()"
FILES = {
    "agent.conf": "port=80\n",
    "site.j2": "small {{ sizes.small }}\n",
    "setup.sh": "touch {out}/done\n",
    "more.yml": "- file: {path: {out}/more, content: more}\n",
}
PLAY = """\
- hosts: all
  vars: {sizes: {small: 1, large: 2}}
  handlers:
    - name: restart the agent
      command: {words: [sh, -c, "echo restarted >>/srv/log"], always: true, become: always}
  tasks:
"""


def rows():
    """The gpuops form of each row, as the lines of one step."""
    text = DOCS.read_text()
    table = text[text.index("| Ansible | gpuops |") :].split("\n\n")[0].splitlines()[2:]
    cells = [re.split(r"(?<!\\)\|", line)[2].replace("\\|", "|") for line in table]
    return [re.findall("`([^`]*)`", cell) for cell in cells]


STEPS = [row for row in rows() if not row[0].startswith("gpuops ")]
(LINE,) = [row[0] for row in rows() if row[0].startswith("gpuops ")]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What a run made and said; ``again`` is the second run, ``checked`` a check before the first."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it locks and changes this machine")
    folder = tmp_path_factory.mktemp("idioms")
    possible = subprocess.run(["unshare", "--mount", "mount", "--bind", folder, "/run"], check=False)
    if possible.returncode != 0:
        pytest.skip("needs mount namespaces, which this container may not make")
    out = folder / "out"
    for path in (folder / "run", out):
        path.mkdir()
    (out / "old").write_text("old")
    for name, text in FILES.items():
        (folder / name).write_text(text.replace("{out}", str(out)))
    steps = "".join(
        f"    - name: row {n}\n" + "".join(f"      {line}\n" for line in row) for n, row in enumerate(STEPS)
    )
    (folder / "site.yml").write_text((PLAY + steps).replace("/srv", str(out)))
    (folder / "gpuops.yml").write_text("inventory: localhost\n")

    def provision(*words):
        line = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /run && exec "$@"', folder / "run"]
        line += [sys.executable, "-c", PROGRAM, "provision", *words, "--force", "--json"]
        done = subprocess.run([*map(str, line)], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode in (0, 1), done
        assert done.stdout, done.stderr
        return json.loads(done.stdout)["results"]

    return SimpleNamespace(
        provision=provision,
        out=out,
        checked=provision("site.yml", "--check"),
        first=provision("site.yml"),
        again=provision("site.yml"),
        files={path.name: path.read_text() if path.is_file() else "" for path in out.rglob("*")},
    )


def test_there_are_more_than_twenty_rows():
    assert len(STEPS) > 20


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_the_row_does_its_work_and_does_nothing_the_second_time(ran, number):
    first = [result for result in ran.first if result["name"] == f"row {number}"]
    again = [result for result in ran.again if result["name"] == f"row {number}"]
    row = " ".join(STEPS[number])
    if row.startswith(("flush", "include", "block: [")):
        assert first == []
        return
    assert first[0]["status"] in ("ok", "changed", "skipped"), first
    repeats = "always: true" in row
    assert again[0]["status"] == ("changed" if repeats else "skipped" if "none_yet.value" in row else "ok")


def test_what_the_rows_made(ran):
    assert {name: text for name, text in ran.files.items() if name not in ("born", "kernel", "arch")} == {
        "a": "", "b": "", "agent.conf": "port=80\n", "conf.d": "", "done": "",
        "hosts": "# BEGIN gpuops\n10.0.0.1 ctl\n# END gpuops\n",
        "issue": "Hello\n", "large": "2", "log": "restarted\n", "more": "more", "motd": "Hello\n", "owner": "nobody",
        "site.conf": "small 1\n", "tool.conf": "port=81\n", "small": "1", "token": "", "x": "1",
    }  # fmt: skip
    assert ran.files["kernel"] == ran.files["arch"] == os.uname().release


def test_the_options_of_the_command_line(ran):
    words = re.findall(r'"[^"]*"|\S+', LINE)[2:]
    text = (ran.out.parent / "site.yml").read_text()
    owner = next(n for n, row in enumerate(STEPS) if "/srv/owner" in row[0])
    (ran.out.parent / "site.yml").write_text(text.replace(f"name: row {owner}\n", "name: The owner\n"))
    results = ran.provision(*(word.strip('"') for word in words))
    assert next(result["name"] for result in results) == "The owner"
    assert (ran.out / "owner").read_text() == "ops"


LOOKS = ("grep", "cat", "wait_for")


def test_check_mode_says_of_every_row_what_the_run_does(ran):
    """A step that only looks at what an earlier step would make is told as one that depends on it."""
    pending = {result["name"] for result in ran.checked if result["status"] in ("would_change", "later")}
    changed = {result["name"] for result in ran.first if result["status"] == "changed"}
    looks = {f"row {n}" for n, row in enumerate(STEPS) if any(word in row[0] for word in LOOKS)}
    assert pending - looks == changed - looks
    assert not changed & looks
