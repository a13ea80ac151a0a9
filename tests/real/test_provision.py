"""``gpuops provision`` as root on this very machine, which has a /run of its own for the time: what it does is real."""

import os
import signal
import subprocess
import sys
import time

import pytest

PLAYBOOK = """\
- hosts: all
  vars: {{out: {out}}}
  tasks:
    - name: first
      file: {{path: "{{{{ out }}}}/a.conf", content: "one\\ntwo\\n", mode: "0600"}}
      notify: tell
    - name: once
      command: {{words: [sh, -c, "echo once >>{out}/log"], always: true, become: always}}
    - name: second
      sysctl: {{key: kernel.ostype, value: Linux, file: "{{{{ out }}}}/b.conf"}}
  handlers:
    - name: tell
      command: {{words: [touch, "{{{{ out }}}}/told"], creates: "{{{{ out }}}}/told", become: always}}
"""
LINES = 14
SLOW = f"sleep 10.{os.getpid()}"  # which nobody else on this machine sleeps
# what the console script is, and a program that dies as the journal's line number {} reaches the disk
PROGRAM = "from gpuops.cli import main; main()"
MORTAL = """
import os, signal
from gpuops.playbook.journal import Journal
write, left = Journal._append, [{}]
def append(self, data):
    write(self, data)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
Journal._append = append
from gpuops.cli import main; main()
"""


class Place:
    """A folder with a playbook, what it makes, and the /run that holds the lock."""

    def __init__(self, folder):
        self.folder = folder
        self.out = folder / "out"
        (folder / "run").mkdir()
        (folder / "p.yml").write_text(PLAYBOOK.format(out=self.out))
        (folder / "gpuops.yml").write_text("inventory: localhost\n")

    def start(self, *words, program=PROGRAM):
        line = 'mount --bind "$0" /run && exec "$@"'
        arguments = ["unshare", "--mount", "sh", "-c", line, self.folder / "run", sys.executable, "-c", program]
        return subprocess.Popen(
            [*map(str, arguments), "provision", "p.yml", "--force", *words],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, *words, code=0, program=PROGRAM):
        process = self.start(*words, program=program)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, (process.returncode, out, err)
        return out + err

    @property
    def made(self):
        return {path.name: path.read_text() for path in self.out.iterdir()} if self.out.is_dir() else {}

    @property
    def last_run(self):
        return max(path.name for path in (self.folder / ".gpuops" / "runs").iterdir())

    @property
    def locked(self):
        return (self.folder / "run" / "gpuops" / "lock").is_dir()


CLEAN = {"a.conf": "one\ntwo\n", "b.conf": "kernel.ostype = Linux\n", "log": "once\n", "told": ""}


@pytest.fixture
def place(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root: it locks and changes this machine")
    possible = subprocess.run(["unshare", "--mount", "mount", "--bind", tmp_path, "/run"], check=False)
    if possible.returncode != 0:
        pytest.skip("needs mount namespaces, which this container may not make")
    return Place(tmp_path)


def test_the_second_run_changes_nothing_but_what_is_always_done(place):
    assert "4 changed, 0 ok, 0 failed" in place.run()
    assert place.made == CLEAN
    assert oct((place.out / "a.conf").stat().st_mode)[-3:] == "600"
    assert not place.locked
    told = place.run()
    assert "1 changed, 2 ok, 0 failed" in told
    assert place.made == {**CLEAN, "log": "once\nonce\n"}


def test_check_mode_leaves_no_trace(place):
    place.run("--check", "--diff", code=1)
    assert place.made == {}
    assert [path.name for path in place.folder.iterdir() if path.name not in ("run", "p.yml", "gpuops.yml")] == []
    assert list((place.folder / "run").iterdir()) == []


@pytest.mark.parametrize("number", range(1, LINES + 1))
def test_killed_after_any_line_of_its_journal_it_comes_to_the_same_end(place, number):
    place.run(code=-signal.SIGKILL, program=MORTAL.format(number))
    assert place.locked == (number > 1)
    told = place.run("--resume", place.last_run, code=3 if number == 5 else 0)
    assert not place.locked
    if number == 5:  # the command's line is on the disk, and unknown whether it ran
        assert "unknown whether this was done before the run was interrupted: sh -c" in " ".join(told.split())
        assert "log" not in place.made
    else:
        assert place.made == CLEAN


def test_the_journal_has_as_many_lines_as_are_tried(place):
    place.run()
    (path,) = place.folder.glob(".gpuops/runs/*/journal.jsonl")
    assert len(path.read_text().splitlines()) == LINES


def slow(place):
    text = (place.folder / "p.yml").read_text()
    (place.folder / "p.yml").write_text(text.replace("echo once", f"{SLOW}; echo once"))
    process = place.start()
    ends = time.monotonic() + 20
    while not (place.out / "a.conf").exists() and time.monotonic() < ends:
        time.sleep(0.05)
    time.sleep(0.5)
    return process


def test_the_second_operator_is_told_who_holds_the_node(place):
    first = slow(place)
    told = place.run(code=4)
    assert f"is locked by root on {os.uname().nodename}, run {place.last_run[:8]}" in told
    assert f"wait for process {first.pid}" in told
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    (place.folder / "p.yml").write_text(PLAYBOOK.format(out=place.out))
    assert place.run("--check", code=1)
    place.run()
    assert place.made == CLEAN


def test_ctrl_c_lets_what_runs_come_to_its_end_and_begins_nothing_more(place):
    process = slow(place)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert "press Ctrl-C again to abandon" in err
    assert f"--resume {place.last_run}" in out
    assert set(place.made) == {"a.conf", "log"}
    assert not place.locked
    place.run("--resume", place.last_run)
    assert place.made == CLEAN


def test_a_second_ctrl_c_abandons_what_runs_and_nobody_repeats_it_blindly(place):
    process = slow(place)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(1)
    began = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert process.returncode == 130, (out, err)
    assert not place.locked
    time.sleep(0.5)
    assert SLOW not in subprocess.run(["ps", "-ef"], capture_output=True, text=True, check=True).stdout
    assert "unknown whether" in " ".join(place.run("--resume", place.last_run, code=3).split())
    assert "log" not in place.made
