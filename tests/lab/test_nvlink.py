"""gpuops allreduce nvlink on the lab: both modes are measured, on idle nodes only."""

import json

import pytest
from tests.program import run_gpuops

from gpuops.lab import cluster


@pytest.fixture
def nvlink(lab, tmp_path):
    """Return a function that runs the command and returns its exit code, its answer as data, and its stderr."""

    def run(*words):
        options = ("-i", lab.folder / "inventory.yml", "--json", "--engine", "nccl-tests")
        done = run_gpuops("allreduce", "nvlink", *options, *words, cwd=tmp_path)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout), done.stderr

    return run


@pytest.mark.long
def test_nvlink_is_worth_most_of_the_time_on_eight_h100(nvlink):
    code, told, _ = nvlink()
    assert code == 0
    assert len(told["all_reduce"]) == 3
    assert all(0.8 < worth["saved"] < 1 for worth in told["all_reduce"].values())
    assert told["training"] == {}


@pytest.mark.long
def test_nothing_is_measured_or_trained_on_a_node_with_a_job(lab, nvlink, plant):
    plant("gpu03:host:busy")
    before = len(cluster.audit(lab.folder, "gpu03"))
    code, told, said = nvlink("--train", "no-such-python")
    assert code == 3
    assert set(told["all_reduce"]) == set(told["training"]) == {"gpu01", "gpu02"}
    assert "excluded: gpu03: skipped: busy" in said
    assert not [line for line in cluster.audit(lab.folder, "gpu03")[before:] if "_perf" in line or "no-such" in line]


def test_a_node_without_the_python_says_so(nvlink):
    _, told, _ = nvlink("-l", "gpu01", "--train", "no-such-python")
    rows = told["training"]["gpu01"]
    assert {row["unknown"] for row in rows.values()} == {"no-such-python is not installed"}
    assert set(rows) == {"dp", "ddp", "ddp-no-p2p"}
