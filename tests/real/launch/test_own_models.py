"""SkyPilot, dstack and Lightning read rendered files with their own code, and refuse a slip in them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.layout import parse_layout
from gpuops.placement import place
from gpuops.render import Env, Job, find_target, render, write

READER = Path(__file__).with_name("own_models.py")
ENV = (Env("NCCL_DEBUG", "WARN", "what is said"),)


@pytest.fixture
def read(tmp_path, node):
    """What a consumer understands of a target's files, after an edit of one of them; in an environment of its own."""

    def run(name, words, edit=None, **job):
        placement = place(parse_layout(words), [node("n1", 4), node("n2", 4)])
        write(render(find_target(name), placement, Job(args=("--lr=1",), env=ENV, **job)), tmp_path / name)
        if edit:
            path, right, wrong = edit
            text = (tmp_path / name / path).read_text()
            assert right in text
            (tmp_path / name / path).write_text(text.replace(right, wrong))
        own = Path(sys.prefix) / name
        python, paths = own / "bin" / "python", os.environ
        if name == "lightning":  # it needs torch, which is here
            python, paths = Path(sys.executable), {**os.environ, "PYTHONPATH": str(own)}
            own = own / "lightning" if importlib.util.find_spec("torch") else Path("/nonexistent")
        if not own.exists():
            pytest.skip(f"there is no {name} here; with GPUOPS_CI=1 make ground installs it")
        done = subprocess.run(
            [python, "-W", "ignore", READER, name, tmp_path / name], env={**paths, "HOME": str(tmp_path)},
            cwd=tmp_path / name, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else done.stderr

    return run


def test_skypilot_takes_the_task(read):
    task = read("skypilot", "tp=4,dp=2", image="img:1")
    assert (task["nodes"], task["accelerators"], task["cloud"]) == (2, {"H100": 4}, "SSH")
    assert task["env"] == {"NCCL_DEBUG": "WARN"}
    assert '--node-rank="$SKYPILOT_NODE_RANK"' in task["run"]


def test_dstack_takes_the_task_and_the_fleet(read):
    told = read("dstack", "tp=4,dp=2", image="img:1", mounts=("/data:/mnt",))
    assert (told["nodes"], told["gpus"], told["mounts"]) == (2, 4, [["/data", "/mnt"]])
    assert (told["env"], told["placement"], told["hosts"]) == ({"NCCL_DEBUG": "WARN"}, "cluster", ["n1", "n2"])
    assert '--node-rank="$DSTACK_NODE_RANK"' in told["run"]


@pytest.mark.parametrize(
    ("words", "strategy"),
    [
        ("dp=8", "ddp"),
        ("dp=8,zero=3", ["FSDPStrategy", {"sharding_strategy": "FULL_SHARD"}]),
        ("tp=4,dp=2,zero=3", ["ModelParallelStrategy", {"data_parallel_size": 2, "tensor_parallel_size": 4}]),
    ],
)
def test_lightning_takes_the_trainer(read, words, strategy):
    trainer = read("lightning", words)
    assert (trainer["devices"], trainer["nodes"]) == (4, 2)
    if isinstance(strategy, list):
        name, arguments = trainer["strategy"]
        assert [name, {key: arguments[key] for key in strategy[1]}] == strategy
    else:
        assert trainer["strategy"] == strategy


@pytest.mark.parametrize(
    ("name", "edit", "complaint"),
    [
        ("skypilot", ("task.yaml", "num_nodes", "num_node"), "num_node"),
        ("dstack", ("train.dstack.yml", "nodes: 2", "node: 2"), "node"),
        ("dstack", ("fleet.dstack.yml", "placement: cluster", "placement: rack"), "placement"),
        ("lightning", ("trainer.yaml", "num_nodes", "nodes"), "nodes"),
    ],
)
def test_a_slip_is_refused(read, name, edit, complaint):
    said = read(
        name,
        "tp=4,dp=2,zero=3" if name == "lightning" else "tp=4,dp=2",
        edit,
        image="" if name == "lightning" else "i:1",
    )
    assert isinstance(said, str)
    assert complaint in said
