"""The commands of rendered manifests, started with what their operators tell pods, make the ranks of the plan."""

import shlex
import sys
from pathlib import Path

import pytest

from gpuops.placement import GpuShape, NodeShape

HOSTS = {"node2": "10.77.0.11", "node10": "10.77.0.12"}
GPUS = tuple(GpuShape(n, f"GPU-{n}", f"0000:{n:02x}:00.0", None, f"mlx5_{n}", 0) for n in (1, 0))
"""In the order of local ranks, which is not that of their numbers."""
SHAPES = [NodeShape(n, a, GPUS, ("L0",), None, n, {(0, 1): "NV18", (1, 0): "NV18"}) for n, a in HOSTS.items()]


@pytest.fixture(scope="module")
def _names(lab):
    """What a cluster's DNS knows of the pods of a job called train."""
    hosts = lab.state / "hosts"
    before = hosts.read_text()
    mpi = (f"train-worker-{n}.train train-worker-{n}.train.default.svc" for n in range(len(HOSTS)))
    torch = ("train-master-0 train-node-0-0.train train-node-0.train", "")
    lines = [f"{address} {a} {b}" for address, a, b in zip(HOSTS.values(), mpi, torch, strict=True)]
    hosts.write_text(before + "\n".join(lines) + "\n")
    yield
    hosts.write_text(before)


@pytest.mark.usefixtures("_names")
@pytest.mark.parametrize("target", ["jobset", "pytorchjob", "trainjob", "volcano", "mpijob"])
def test_pods_are_the_nodes_of_the_plan(launch, target):
    words = [sys.executable, str(Path(__file__).with_name("pods.py")), f"{target}.yaml", *HOSTS]
    tools = ["mpirun.openmpi"] if target == "mpijob" else []
    plan, found = launch(target, "dp=2,tp=2", shapes=SHAPES, needs=tools, command=shlex.join(words))
    seats = [[find[key] for key in ("rank", "node", "local_rank", "gpu")] for _, find in sorted(found.items())]
    assert seats == [[rank[key] for key in ("rank", "node", "local_rank", "gpu")] for rank in plan["ranks"]]
    assert [rank["gpu"] for rank in plan["ranks"]] == [1, 0, 1, 0]
