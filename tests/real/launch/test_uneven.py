"""Rendered files start jobs also where nodes use unequally many GPUs, and not in the order of their numbers."""

import pytest

from gpuops.placement import GpuShape, NodeShape

BRIDGES = {(0, 2): "NV4", (2, 0): "NV4", (1, 3): "NV4", (3, 1): "NV4"}
"""NVLink joins these pairs only, so tensor parallel groups are GPUs 0 and 2, and 1 and 3."""


def shape(name, address, leaf):
    gpus = tuple(GpuShape(n, f"GPU-{name}-{n}", f"0000:{n:02x}:00.0", None, f"mlx5_{n}", n % 2) for n in range(4))
    return NodeShape(name, address, gpus, (leaf,), None, name, BRIDGES)


SHAPES = [shape("node2", "10.77.0.11", "L0"), shape("node10", "10.77.0.12", "L0")]


@pytest.mark.parametrize(
    ("target", "tool"),
    [("torchrun-elastic", "pdsh"), ("openmpi", "mpirun.openmpi")],
)
def test_the_last_node_uses_fewer_gpus(launch, target, tool):
    plan, found = launch(target, "dp=3,tp=2", shapes=SHAPES, needs=[tool])
    assert [node["gpus"] for node in plan["nodes"]] == [[0, 2, 1, 3], [0, 2]]
    assert [(found[rank]["node"], found[rank]["gpu"]) for rank in range(6)] == [
        *(("node2", gpu) for gpu in (0, 2, 1, 3)),
        ("node10", 0),
        ("node10", 2),
    ]
