"""Causes in the GPUs and the fabric of a simulated cluster: named, mended as the fix says, and the job starts.

A stand-in for torchrun starts the ranks, which only have to start; what people do with hardware is done to the lab.
"""

import fnmatch
import json
import re
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.program import proposed, run_gpuops
from tests.real.launch.causes.on_lab import ON_LAB
from tests.real.launch.causes.planted import chosen

from gpuops.lab import cluster

STAND_IN = """#!/usr/bin/env python3
import os, subprocess, sys

options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--"))
script = [word for word in sys.argv[1:] if not word.startswith("--")]
count, node, nodes = (int(options[name]) for name in ("nproc-per-node", "node-rank", "nnodes"))
numbers = [{"RANK": node * count + rank, "LOCAL_RANK": rank, "WORLD_SIZE": count * nodes} for rank in range(count)]
environments = [{**os.environ, **{name: str(value) for name, value in own.items()}} for own in numbers]
ranks = [subprocess.Popen([sys.executable, *script], env=own) for own in environments]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.fixture(scope="module")
def lab():
    """Two simulated nodes with eight GPUs each, and a folder that the user of their commands can read."""
    with tempfile.TemporaryDirectory(prefix="gpuops-causes-") as base:
        Path(base).chmod(0o755)
        folder = Path(base, ".gpuops", "lab")
        cluster.up(folder, "hgx-h100", 2, [])
        yield SimpleNamespace(base=Path(base), folder=folder, inventory=folder / "inventory.yml")
        cluster.down(folder)


class Job:
    """A job of 16 ranks that gpuops renders for torchrun."""

    def __init__(self, lab):
        self.lab = lab
        self.folder = lab.base / "job"
        self.options = []

    def render(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        words = ("-i", self.lab.inventory, "-t", "torchrun", "--layout", "dp=2,tp=8", "-o", self.folder)
        run_gpuops("render", *words, "--", "train.py", cwd=self.lab.base, check=True)
        for script in self.folder.glob("*.sh"):
            script.write_text(script.read_text().replace("exec torchrun", f"exec {self.folder}/torchrun"))
        (self.folder / "torchrun").write_text(STAND_IN)
        (self.folder / "torchrun").chmod(0o755)
        (self.folder / "train.py").write_text("print('runs')\n")
        self.folder.chmod(0o755)

    def launch(self):
        words = ("-i", self.lab.inventory, "--json", "--grace", "1", *self.options)
        done = run_gpuops("launch", self.folder, *words, cwd=self.lab.base, timeout=300)
        assert done.stdout.startswith("{"), done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    def plant(self, lines):
        for host, line in lines.items():
            if host:
                cluster.inject(self.lab.folder, [f"{host}:{line}"])
            else:
                command, _, file = line.rpartition(" ")
                _, old, new, _ = command.split("/")
                path = self.folder / file
                path.write_text(re.sub(old, new, path.read_text(), flags=re.MULTILINE))

    def carry_out(self, cause):
        """Do as the fix says: an option, a line of a script, a command of gpuops, or work on the machine itself."""
        fix = cause["fix"]
        if fix.startswith("--env "):
            self.options += fix.split()
        elif match := re.fullmatch(r"(\S+):(\d+): remove (\w+)=(\S+)", fix):
            path, number = self.folder / match[1], int(match[2]) - 1
            lines = path.read_text().splitlines(keepends=True)
            assert lines.pop(number).startswith(f"export {match[3]}={match[4]} ")
            path.write_text("".join(lines))
        elif (commands := proposed(fix)) and not fix.startswith("repair the node, or "):
            run_gpuops(*commands[0], "--yes", cwd=self.lab.base, check=True)
        else:
            cluster.clear(self.lab.folder, cause["nodes"])


@pytest.fixture
def job(lab):
    yield Job(lab)
    cluster.clear(lab.folder, [])


@pytest.mark.parametrize("planted", chosen(ON_LAB), ids=lambda planted: planted.about.replace(" ", "-"))
def test_cause_is_named_and_after_its_fix_the_job_starts(job, planted):
    job.render()
    job.options = planted.launched.split()
    job.plant(planted.plant)
    code, document = job.launch()
    first, *others = document["preflight"]["causes"]
    assert (code, first["test"], ",".join(first["nodes"])) == (planted.code, planted.test, planted.nodes), first
    assert fnmatch.fnmatchcase(first["why"], planted.why.replace("[", "[[]")), first["why"]
    names = {"{inventory}": str(job.lab.inventory), "{job}": str(job.folder)}
    assert first["fix"] == re.sub(r"\{\w+\}", lambda match: names[match[0]], planted.fix)
    assert not document["started"]
    job.carry_out(first)
    code, document = job.launch()
    assert (code, document["preflight"]["causes"]) == (0, []), (document["preflight"]["causes"], others)
    assert document["asserted"] == list(range(16)), document["failure"]
