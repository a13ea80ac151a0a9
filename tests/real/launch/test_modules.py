"""The modules that are rendered for PyTorch train, under torchrun, as one process with all samples would."""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.layout import parse_layout
from gpuops.placement import place
from gpuops.render import Job, environment_of, find_target, render, write

RANKS = 4


@pytest.fixture
def train(tmp_path, node, port):
    """Starts four ranks by a target's script, which train on its module of every layout.

    For every layout: its placement, and what every rank found.
    """
    if importlib.util.find_spec("torch") is None:
        pytest.skip("there is no torch here, which is the extra gpuops[launch]")

    def run(name, module, script, *layouts):
        target, found = find_target(name), tmp_path / "found"
        found.mkdir()
        folders = [tmp_path / f"launch{n}" for n in range(len(layouts))]
        words = (str(found), *(str(folder / module) for folder in folders[1:]))
        plans = [place(parse_layout(*layout), [node("here", RANKS, "127.0.0.1")]) for layout in layouts]
        for plan, folder in zip(plans, folders, strict=True):
            env = environment_of(plan, target.engine)
            job = Job(str(Path(__file__).with_name(script)), words, port=port, env=env)
            write(render(target, plan, job), folder)
        done = subprocess.run(
            [folders[0] / "run-here.sh"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        ranks = [json.loads((found / f"{rank}.json").read_text()) for rank in range(RANKS)]
        return list(zip(plans, zip(*ranks, strict=True), strict=True))

    return run


def assert_in_groups(plan, finds):
    for rank, find in enumerate(finds):
        for axis, group in find["groups"].items():
            assert group in plan.groups[axis]
            assert rank in group


def test_a_model_trains_on_the_mesh(train):
    layouts = [
        ("dp=2,tp=2,zero=3,mbs=2,chunks=2",),
        ("dp=2,tp=2,zero=2,mbs=3", "dp-tp-pp"),
        ("dp=2,pp=2,zero=3,mbs=2", "tp-pp-dp"),
        ("dp=4,zero=3,shard=2,mbs=2,chunks=2",),
        ("dp=4,zero=2,shard=2",),
    ]
    held = [1 / 4, 1 / 2, 1 / 2, 1 / 2, 1]  # ZeRO 3 gives up after the forward pass what it gathered, ZeRO 2 keeps it
    for (plan, finds), share in zip(train("fsdp2", "mesh.py", "step_on_mesh.py", *layouts), held, strict=True):
        assert_in_groups(plan, finds)
        for group in (*plan.groups["tp"], *plan.groups["pp"]):
            assert len({finds[rank]["loss"] for rank in group}) == 1
        for group in plan.groups["dp"]:
            loss = statistics.mean(finds[rank]["loss"] for rank in group)
            assert loss == pytest.approx(finds[0]["expected"], rel=1e-5)
        assert {find["held"] for find in finds} == {share}


def test_a_model_trains_in_the_pipeline(train):
    layouts = [
        ("dp=2,pp=2,mbs=2,chunks=4", "tp-pp-dp"),  # GPipe
        ("dp=2,pp=2,mbs=3,chunks=1",),  # naive model parallelism
        ("pp=4,mbs=1,chunks=4",),
    ]
    for plan, finds in train("torch-pipeline", "pipeline.py", "step_in_pipeline.py", *layouts):
        assert_in_groups(plan, finds)
        for stages in plan.groups["pp"]:
            *others, last = (finds[rank] for rank in stages)
            assert [find["losses"] for find in others] == [[]] * len(others)
            assert len(last["losses"]) == plan.layout.chunks
            assert statistics.mean(last["losses"]) == pytest.approx(last["expected"], rel=1e-5)
