"""``gpuops fix`` on the lab over real SSH: previewed, refused while a node is in use, applied, and judged again."""

import json
import os
import pty
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.program import run_gpuops

from gpuops.cli import program
from gpuops.lab import cluster

TOUCHING = ("systemctl start", "systemctl stop", "nvidia-smi --gpu-reset")
CLIENTS = ("slurmd", "nvidia-dcgm", "nvidia-persistenced", "nvidia-fabricmanager")


@pytest.fixture
def fix(lab, tmp_path):
    def run(check, node, *words, code=0):
        words = (check, node, "-i", str(lab.folder / "inventory.yml"), *words)
        done = run_gpuops("fix", *words, cwd=tmp_path)
        assert done.returncode == code, done
        return " ".join(done.stdout.split())

    return run


@pytest.fixture
def touched(lab):
    """Return what was done to a host since the test began, in order, without gpuops' own systemd unit."""
    before = {name: len(cluster.audit(lab.folder, name)) for name in lab.hosts}

    def read(name):
        lines = cluster.audit(lab.folder, name)[before[name] :]
        return [line for line in lines if line.startswith(TOUCHING) and " gpuops-" not in line]

    return read


def test_what_would_be_done_is_shown_and_nothing_is_done_until_it_is_confirmed(lab, plant, fix, touched):
    plant("gpu01:gpu1:remap-pending")
    told = fix("row-remap-pending", "gpu01", code=1)
    assert "reset all GPUs together: a row remapping is pending" in told
    assert told.endswith(f"to apply it: gpuops fix row-remap-pending gpu01 --yes -i {lab.folder}/inventory.yml")
    assert touched("gpu01") == []


def test_end_of_input_changes_nothing_and_says_how_to_confirm(lab, plant, touched, tmp_path):
    plant("gpu01:gpu1:remap-pending")
    ours, terminal = pty.openpty()
    os.write(ours, b"\x04")  # ^D
    words = ("fix", "row-remap-pending", "gpu01", "-i", lab.folder / "inventory.yml")
    done = subprocess.run(
        [sys.executable, "-m", "gpuops", *words], cwd=tmp_path, stdin=terminal,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(terminal)
    assert done.returncode == 1, done
    assert done.stderr.endswith("gpuops: nothing was changed; --yes applies the fix without asking\n")
    assert touched("gpu01") == []


def test_gpus_are_reset_with_their_clients_stopped_which_run_again(plant, fix, touched):
    plant("gpu01:gpu1:remap-pending")
    assert fix("row-remap-pending", "gpu01", "--yes").endswith("gpu01 row-remap-pending: pass")
    stops, starts = ([f"systemctl {verb} {unit}" for unit in CLIENTS] for verb in ("stop", "start"))
    assert touched("gpu01") == [*stops, "nvidia-smi --gpu-reset", *reversed(starts)]
    assert fix("row-remap-pending", "gpu01").endswith("gpu01 row-remap-pending: pass")


@pytest.mark.parametrize(
    ("check", "fault"), [("row-remap-pending", "remap-pending"), ("ecc-uncorrectable", "ecc-uncorrectable=2")]
)
def test_after_the_reset_nobody_asks_for_it_again(plant, fix, lab, home, monkeypatch, tmp_path, check, fault):
    plant(f"gpu01:gpu1:{fault}")
    assert fix(check, "gpu01", "--yes").endswith(f"{check}: pass")
    monkeypatch.chdir(tmp_path)
    words = ["validate", "-i", str(lab.folder / "inventory.yml"), "--limit", "gpu01", "--format", "json"]
    host = json.loads(CliRunner().invoke(program, words).stdout)["hosts"]["gpu01"]
    assert host["status"] == "pass", host["findings"]
    assert all(finding["severity"] == "info" for finding in host["findings"])


def test_gpus_in_use_are_left_alone(plant, fix, touched):
    plant("gpu01:gpu1:remap-pending", "gpu01:gpu0:busy")
    assert "GPUs are in use" in fix("row-remap-pending", "gpu01", "--yes", code=3)
    assert touched("gpu01") == []


def test_where_a_gpu_is_lost_no_reset_is_tried(plant, fix, touched):
    plant("gpu01:gpu1:ecc-uncorrectable=2", "gpu01:gpu5:lost")
    assert "which a reset cannot clear" in fix("ecc-uncorrectable", "gpu01", code=1)
    assert touched("gpu01") == []
