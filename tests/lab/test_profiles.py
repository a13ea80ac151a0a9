"""Profiles of machines that have none: what could not be judged is said, and learned from the machines."""

import json

import pytest
from tests.program import run_gpuops


@pytest.fixture
def gpuops(lab, tmp_path):
    """Return a function that runs a command on the lab's hosts, of which the inventory names no profile."""
    text = (lab.folder / "inventory.yml").read_text()
    bare = lab.folder / "bare.yml"
    bare.write_text("".join(line for line in text.splitlines(keepends=True) if "profile:" not in line))
    return lambda *words: run_gpuops(*words, "-i", bare, cwd=tmp_path)


def test_profile_is_learned_written_and_used(gpuops, plant, tmp_path):
    plant("gpu02:gpu1:power-cap=500")
    file = tmp_path / "checks" / "profiles" / "ours.yml"
    done = gpuops("profiles", "learn", "gpu[01-03]", "-o", file)
    assert done.returncode == 0, done.stderr
    assert "differs    gpu02: power.limit_watts is 700 (7 of 8), 500 (1 of 8), not 700" in done.stdout
    assert "learned from 3 nodes on" in file.read_text()
    shown = run_gpuops("profiles", "show", "ours", "--json", cwd=tmp_path)
    values = json.loads(shown.stdout)["values"]
    assert values["power.limit_watts"]["grade"] == "measured-here"
    assert values["allreduce.nvls.8"]["inherited_from"] == "hgx-h100"
    report = json.loads(gpuops("validate", "--json").stdout)
    assert {host["profile"] for host in report["hosts"].values()} == {"ours"}
    assert [(finding["host"], finding["check"]) for finding in report["findings"]] == [("gpu02", "power-limit")]
