"""Runs that are killed with -9: the same command goes on by itself, and nothing is done twice."""

import json
import os
import subprocess
import sys
import time

import pytest
from tests.program import run_gpuops

from gpuops.playbook.locking import Owner

pytestmark = pytest.mark.long
PLAYBOOK = """\
- hosts: gpu0[1-2]
  tasks:
    - name: Make it
      command:
        words: [sh, -c, 'until [ -e "$1.may" ]; do sleep 0.05; done; echo made >>"$1"', sh, /run/made]
        creates: /run/made
        become: always
        detach: %s
"""


@pytest.fixture
def project(lab):
    """The project's folder, without runs; the hosts have made nothing."""
    folder = lab.folder.parents[1]
    for host in lab.hosts:
        run = lab.root(host) / "run"
        for path in [*run.glob("made*"), *run.glob("units/*"), *run.glob("gpuops/lock/*")]:
            path.unlink(missing_ok=True)
        (run / "gpuops" / "lock").rmdir() if (run / "gpuops" / "lock").exists() else None
    return folder


def start(folder, *words):
    """Start gpuops; its messages go to the file told."""
    line = [sys.executable, "-m", "gpuops", *map(str, words)]
    with (folder / "told").open("wb") as told:
        return subprocess.Popen(line, cwd=folder, stdout=subprocess.DEVNULL, stderr=told)


def wait_for(condition, seconds=60.0):
    ends = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends:
        time.sleep(0.02)
    assert condition()


@pytest.mark.parametrize("detached", ["true", "false"])
def test_the_same_command_goes_on_after_kill_9(lab, project, detached):
    (project / "p.yml").write_text(PLAYBOOK % detached)
    made = [lab.root(host) / "run" / "made" for host in ("gpu01", "gpu02")]
    began = set(lab.folder.glob(".gpuops/runs/*/journal.jsonl"))
    words = ("provision", "p.yml", "-i", lab.folder / "inventory.yml")
    process = start(project, *words)

    def is_at_work():
        journals = set(lab.folder.glob(".gpuops/runs/*/journal.jsonl")) - began
        return sum(path.read_text().count('"event": "change"') for path in journals) == 2

    def runs_units():
        return all([*path.parent.glob("units/gpuops-*")] for path in made)

    wait_for(is_at_work)
    wait_for(lambda: detached == "false" or runs_units())
    process.kill()
    process.wait()
    again = start(project, *words)
    if detached == "true":
        wait_for(lambda: (project / "told").read_text().count("left running: gpuops-") == 2)
    for path in made:
        path.with_suffix(".may").touch()
    assert again.wait(120) == 0
    lines = (project / "told").read_text().splitlines()
    (told,) = [line for line in lines if "took over" in line]
    assert "took over the lock of gpu01, gpu02 from " in told
    assert told.endswith(": its process has ended")
    assert len(lines) == (4 if detached == "true" else 2)
    assert [path.read_text() for path in made] == ["made\n"] * 2
    left = {path.name for host in lab.hosts for path in (lab.root(host) / "run").rglob("*") if path.is_file()}
    assert left == {"made", "made.may"}


def test_the_lock_of_a_machine_elsewhere_stays_until_it_is_broken(lab, project):
    (project / "p.yml").write_text(PLAYBOOK % "false")
    holder = {**vars(Owner("20260101-000000-1", "ann")), "machine": "elsewhere", "boot_id": "its own"}
    lock = lab.root("gpu02") / "run" / "gpuops" / "lock"
    lock.mkdir(parents=True)
    (lab.root("gpu02") / "run" / "made.may").touch()
    (lab.root("gpu01") / "run" / "made.may").touch()
    (lock / "owner-20260101").write_text(json.dumps(holder))
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", "nobody", lab.root("gpu02") / "run"], check=True)
    done = run_gpuops("provision", "p.yml", "-i", lab.folder / "inventory.yml", cwd=project)
    assert done.returncode == 4
    sentence = f"gpu02 is locked by ann on elsewhere, run 20260101-000000-1, since {holder['since']}; if process "
    assert sentence in " ".join((done.stdout + done.stderr).split())
    assert "took over" not in done.stdout + done.stderr
    done = run_gpuops("provision", "p.yml", "-i", lab.folder / "inventory.yml", "--break-lock", cwd=project)
    assert done.returncode == 0
    assert "took over the lock of gpu02 from ann on elsewhere" in done.stderr
