"""gpuops allreduce sharp on the lab: what is on, off, missing and broken is told apart by NCCL's lines."""

import json
import subprocess
import sys

import pytest


@pytest.mark.long
def test_each_node_and_the_fabric_are_compared_on_and_off(lab, plant, tmp_path):
    plant("gpu02:host:no-multicast", "gpu03:host:slow-multicast=35")
    command = [sys.executable, "-m", "gpuops", "allreduce", "sharp", "-i", lab.folder / "inventory.yml", "--json"]
    done = subprocess.run(
        [*command, "--engine", "nccl-tests"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    document = json.loads(done.stdout)
    assert done.returncode == 1
    by_node = {each["nodes"][0]: each for each in document["nvls"]}
    assert {node: each["status"] for node, each in by_node.items()} == {
        "gpu01": "faster",
        "gpu02": "inactive",
        "gpu03": "not-faster",
    }
    assert 1.25 < by_node["gpu01"]["ratio"] < 1.35
    assert 0.8 < by_node["gpu03"]["ratio"] < 0.9
    assert "fabricmanager" in by_node["gpu02"]["do"]
    (sharp,) = document["sharp"]
    assert (sharp["status"], sharp["is_fault"], sharp["nodes"]) == ("inactive", False, ["gpu01", "gpu02", "gpu03"])
