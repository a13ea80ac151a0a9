"""``accelerate launch`` takes the rendered files, and Accelerate's own objects hold what the layout says."""

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuops.layout import parse_layout
from gpuops.placement import place
from gpuops.render import Job, environment_of, find_target, render, write


@pytest.fixture
def launch(tmp_path, node, port):
    """Starts both nodes' scripts on this machine; the placement, and what every rank found."""

    def start(name, words):
        if not all(map(importlib.util.find_spec, ("accelerate", "deepspeed"))):
            pytest.skip("there is no Accelerate or DeepSpeed here, which are of the extra gpuops[launch]")
        layout = parse_layout(words)
        shapes = [node(f"n{n}", layout.ranks // 2, f"127.0.0.{n}") for n in (1, 2)]
        placement = place(layout, shapes)
        target = find_target(name)
        script = str(Path(__file__).with_name("accelerating.py"))
        job = Job(script, (str(tmp_path),), port=port, env=environment_of(placement, target.engine))
        write(render(target, placement, job), tmp_path / "launch")
        with ExitStack() as running:
            for each in ("n1", "n2"):
                running.enter_context(started(tmp_path / "launch" / f"run-{each}.sh"))
        return placement, {int(path.stem): json.loads(path.read_text()) for path in tmp_path.glob("*.json")}

    return start


def started(script):
    """A node's script; that it succeeds is seen from what the ranks leave."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(["timeout", "120", script], env={**os.environ, "PATH": path, "DS_ACCELERATOR": "cpu"})


def assert_seats(placement, found):
    """Every rank of the placement is there, on its node."""
    nodes = [shape.name for shape in placement.nodes]
    seats = {rank: (nodes[at["node"]], at["local_rank"]) for rank, at in found.items()}
    assert seats == {rank.rank: (rank.node, rank.local_rank) for rank in placement.ranks}
    assert {at["ranks"] for at in found.values()} == {placement.layout.ranks}


def test_plain_data_parallelism(launch):
    placement, found = launch("accelerate-ddp", "dp=2,chunks=3")
    assert_seats(placement, found)
    assert [at["chunks"] for at in found.values()] == [3, 3]
    assert "fsdp" not in found[0]


def test_fsdp(launch):
    placement, found = launch("accelerate-fsdp", "dp=2,cp=2,zero=2,chunks=3,offload=cpu,recompute=full")
    assert_seats(placement, found)
    for rank, at in found.items():
        own = {axis: next(list(group) for group in placement.groups[axis] if rank in group) for axis in ("dp", "cp")}
        assert at["chunks"] == 3
        assert at["fsdp"] == {
            "version": 2,
            "reshard": False,
            "offload": "CPUOffloadPolicy",
            "recompute": True,
            "groups": {"dp_shard": own["dp"], "cp": own["cp"]},
        }


def test_deepspeed(launch):
    placement, found = launch("accelerate-deepspeed", "dp=2,zero=3,offload=nvme,chunks=3")
    assert_seats(placement, found)
    config = found[0]["deepspeed"]
    assert (config["gradient_accumulation_steps"], config["bf16"]) == (3, {"enabled": True})
    zero = config["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["offload_optimizer"] == zero["offload_param"] == {"device": "nvme", "nvme_path": "/local_nvme"}
