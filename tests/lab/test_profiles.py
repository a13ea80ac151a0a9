"""Profiles of machines that have none: what could not be judged is said, and learned from the machines."""

import json
import re
import shlex

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


def test_command_for_machines_without_a_profile_can_be_pasted(gpuops, tmp_path):
    gpuops("facts", "--save", "saved")
    for file in (tmp_path / "saved").glob("*.json"):  # as if nobody knew this GPU
        file.write_text(file.read_text().replace("NVIDIA H100 80GB HBM3", "NVIDIA X1"))
    first = run_gpuops("validate", "--from", "saved", cwd=tmp_path)
    assert re.match(r"no profile matches 3 nodes \(8 NVIDIA X1\): \d checks with numbers", first.stdout.splitlines()[1])
    (command,) = (line for line in first.stdout.splitlines() if line.startswith("gpuops profiles learn"))
    assert command == "gpuops profiles learn 'gpu[01-03]' -o checks/profiles/my-x1.yml --from saved"
    assert run_gpuops(*shlex.split(command)[1:], cwd=tmp_path).returncode == 0
    second = run_gpuops("validate", "--from", "saved", cwd=tmp_path)
    assert "no profile" not in second.stdout
    report = json.loads(run_gpuops("validate", "--from", "saved", "--json", cwd=tmp_path).stdout)
    assert {host["profile"] for host in report["hosts"].values()} == {"my-x1"}
    assert (report["findings"], report["unmatched"]) == ([], [])


def test_command_for_machines_without_a_profile_names_the_inventory(gpuops, lab, tmp_path):
    (tmp_path / "checks" / "profiles").mkdir(parents=True)
    hidden = "name: hgx-h100\nvalues: {}\n"  # of the project, so that no profile matches the lab's hosts
    (tmp_path / "checks" / "profiles" / "hgx-h100.yml").write_text(hidden)
    shown = gpuops("validate", "gpu02,gpu03").stdout
    learn = "gpuops profiles learn 'gpu[02-03]' -o checks/profiles/my-h100-80gb-hbm3.yml -i "
    assert f"{learn}{lab.folder / 'bare.yml'}" in shown.splitlines()
