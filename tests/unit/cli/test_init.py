"""``gpuops init``: the files of a new project are read by every other command."""

import json
import subprocess
import sys

import pytest
from tests.program import run_gpuops

from gpuops.inventory.beginning import files_of_project


def test_new_project_is_read_by_the_other_commands(tmp_path):
    done = run_gpuops("init", "gpu[08-11,20],login1", "prod", "--profile", "hgx-h100", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "wrote prod/gpuops.yml, prod/inventory.yml, prod/fabfile.py; next: " in done.stderr
    listed = run_gpuops("inventory", "list", "--json", cwd=tmp_path / "prod")
    assert listed.returncode == 0, listed
    hosts = json.loads(listed.stdout)
    assert hosts["ungrouped"]["hosts"] == ["gpu08", "gpu09", "gpu10", "gpu11", "gpu20", "login1"]
    assert "\n    profile: hgx-h100\n" in (tmp_path / "prod" / "inventory.yml").read_text()
    tasks = subprocess.run(
        [sys.executable, "-m", "fabric", "--list"], cwd=tmp_path / "prod", capture_output=True, text=True, check=False
    )
    assert " sysctl " in tasks.stdout, tasks


def test_what_exists_is_never_replaced_and_then_nothing_is_written(tmp_path):
    (tmp_path / "inventory.yml").write_text("mine")
    done = run_gpuops("init", "gpu01", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "gpuops: inventory.yml exists; remove it, or name another directory\n")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("inventory.yml", "mine")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpu[01-"], "expected host names like gpu[01-16],login1"),
        (["gpu;rm"], "host name"),
        (["gpu01", "--profile", "hgx-h10"], "did you mean"),
    ],
)
def test_wrong_words_are_one_sentence(tmp_path, words, said):
    done = run_gpuops("init", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_ranges_are_written_as_ansible_does():
    assert "    gpu[001:128]:\n    gpu200:\n" in files_of_project("gpu[001-128],gpu200")["inventory.yml"]
