"""Placement of a layout on the nodes of a running lab, as they are now, asked over SSH."""

import json

from tests.program import run_gpuops


def place(lab, *words):
    done = run_gpuops("place", "-i", lab.folder / "inventory.yml", "--json", *words)
    return done, json.loads(done.stdout) if done.returncode == 0 else None


def test_every_rank_has_the_nic_and_numa_node_beside_its_gpu(lab):
    _, document = place(lab, "--layout", "dp=3,tp=8")
    assert [(rank["node"], rank["gpu"]) for rank in document["ranks"]] == [
        (f"gpu{n:02}", gpu) for n in (1, 2, 3) for gpu in range(8)
    ]
    assert all(rank["nic"] == f"mlx5_{rank['gpu']}" for rank in document["ranks"])
    assert [rank["numa"] for rank in document["ranks"][:8]] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_node_with_a_lost_gpu_is_left_out_and_another_takes_its_ranks(lab, plant):
    plant("gpu02:gpu2:lost")
    done, document = place(lab, "--layout", "dp=2,tp=8")
    assert [node["name"] for node in document["nodes"]] == ["gpu01", "gpu03"]
    assert "excluded: gpu02: fails gpu-lost" in done.stderr


def test_what_the_healthy_nodes_cannot_hold_is_refused(lab, plant):
    plant("gpu02:gpu2:lost")
    done, _ = place(lab, "--layout", "dp=3,tp=8")
    assert done.returncode == 2
    assert "dp=3 · tp=8 = 24 GPUs are needed but only 16 are usable" in done.stderr
