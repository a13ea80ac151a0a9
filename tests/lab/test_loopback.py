"""gpuops allreduce loopback on the lab: a narrow PCIe link is low with itself, a bad cable is not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gpuops.lab import cluster

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "loopback-1.json"


@pytest.fixture
def loopback(lab, tmp_path):
    """Return a function that runs the command and returns its exit code, its answer as data, and its text."""

    def run(*words):
        verb = [sys.executable, "-m", "gpuops", "allreduce", "loopback", "-i", lab.folder / "inventory.yml", *words]
        done = subprocess.run(verb, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.stdout, done.stderr
        return done.returncode, done.stdout

    return run


@pytest.mark.long
def test_a_narrow_pcie_link_is_low_and_a_bad_cable_is_not(loopback, plant):
    plant("gpu01:mlx5_3:pcie-width=8")
    plant("gpu02:mlx5_5:slow=40")
    code, text = loopback("--json", "-l", "gpu01,gpu02")
    document = json.loads(text)
    low = [each for each in document["hcas"] if each["status"] == "low"]
    assert (code, [(each["node"], each["device"]) for each in low]) == (1, [("gpu01", "mlx5_3")])
    assert (low[0]["pcie"]["width"], low[0]["pcie"]["max_width"]) == (8, 16)
    assert len(document["hcas"]) == 16
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)


def test_a_busy_node_is_left_alone(lab, loopback, plant):
    plant("gpu03:host:busy")
    before = len(cluster.audit(lab.folder, "gpu03"))
    code, text = loopback("-l", "gpu03")
    assert code == 3
    assert "gpu03: skipped: busy" in text
    assert not [line for line in cluster.audit(lab.folder, "gpu03")[before:] if "ib_write_bw" in line]
