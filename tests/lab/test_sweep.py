"""gpuops allreduce sweep on the lab: the curve has the lab's own latency and bandwidth, and busy nodes stay alone."""

import json
import subprocess
import sys

import pytest


@pytest.fixture
def sweep(lab, tmp_path):
    def run(*words):
        command = [sys.executable, "-m", "gpuops", "allreduce", "sweep", "-i", lab.folder / "inventory.yml", "--json"]
        engine = ("--engine", "nccl-tests")
        done = subprocess.run([*command, *engine, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.mark.long
def test_curve_of_all_nodes_goes_from_latency_to_bandwidth(sweep):
    code, document = sweep()
    (curve,) = document["curves"]
    assert (code, curve["nodes"]) == (0, ["gpu01", "gpu02", "gpu03"])
    points = curve["points"]
    assert [point["size_bytes"] for point in points] == [1 << power for power in range(10, 31)]
    # the lab: 60 us and 80 us for each doubling of nodes, of which the protocol LL needs three tenths
    assert points[0]["time_us"] == pytest.approx((60 + 80 * 1.585) * 0.3, rel=0.05)
    assert points[0]["algorithm"].endswith("/LL")
    assert points[-1]["algorithm"].endswith("/SIMPLE")
    assert curve["crossover"]["peak_busbw_gb_per_s"] == points[-1]["busbw_gb_per_s"]
    half = [p["size_bytes"] for p in points if p["busbw_gb_per_s"] >= points[-1]["busbw_gb_per_s"] / 2]
    assert half[0] / 2 < curve["crossover"]["half_size_bytes"] <= half[0]


@pytest.mark.long
def test_busy_node_is_left_alone_and_the_others_have_curves(sweep, plant):
    plant("gpu03:host:busy")
    code, document = sweep("--scope", "node", "--max-size", "64K")
    assert code == 3
    assert {curve["nodes"][0]: curve["trouble"] for curve in document["curves"]} == {"gpu01": "", "gpu02": ""}
    assert list(document["excluded"]) == ["gpu03"]
