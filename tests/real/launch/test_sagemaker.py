"""Amazon's own SDK takes the rendered estimator, and hands to the containers what the layout says; nothing is sent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.layout import parse_layout
from gpuops.placement import place
from gpuops.render import Job, find_target, render, write

SDK = Path(sys.prefix) / "sagemaker" / "bin" / "python"
"""In an environment of its own, which the Makefile makes: it pins other versions of what is needed here."""


@pytest.fixture
def estimator(tmp_path, node):
    """Renders two instances' estimator; its path."""

    def make(words, order):
        placement = place(parse_layout(words, order), [node("n1", 8), node("n2", 8)])
        write(render(find_target("sagemaker"), placement, Job(args=("--lr=1e-4",))), tmp_path)
        return tmp_path / "estimator.py"

    return make


@pytest.fixture
def sdk(tmp_path):
    """What the SDK says of an estimator: exit status, and what it printed."""
    if not SDK.exists():
        pytest.skip("there is no SageMaker SDK here; with GPUOPS_CI=1 make test installs it, 306 MB")

    def read(path):
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"}
        script = Path(__file__).with_name("estimating.py")
        done = subprocess.run(
            [SDK, script, path], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    return read


@pytest.mark.parametrize(
    ("words", "order", "strategy"),
    [
        ("dp=2,pp=2,tp=4,chunks=8,zero=1", "tp-cp-ep-pp-dp", "cluster"),
        ("dp=2,tp=8,chunks=2", "tp-cp-ep-dp-pp", "cluster"),
        ("dp=8,pp=2,chunks=4", "tp-cp-ep-dp-pp", "spread"),
    ],
)
def test_the_containers_are_told_the_layout(estimator, sdk, words, order, strategy):
    layout = parse_layout(words, order)
    code, said = sdk(estimator(words, order))
    assert code == 0, said
    handed_over = json.loads(said.splitlines()[-1])
    assert handed_over.pop("instances") == 2
    told = {name: json.loads(text) for name, text in handed_over.items()}
    assert told["lr"] == "1e-4"
    assert told["sagemaker_mpi_enabled"] is True
    assert told["sagemaker_mpi_num_of_processes_per_host"] == 8
    assert told["mp_parameters"] == {
        "pipeline_parallel_degree": layout.pp,
        "tensor_parallel_degree": layout.tp,
        "ddp": True,
        "microbatches": layout.chunks,
        "placement_strategy": strategy,
        "shard_optimizer_state": layout.zero == 1,
    }


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('"modelparallel"', '"modelparalel"', "Invalid smdistributed strategy provided: modelparalel"),
        ('"cluster"', '"PDT"', "placement_strategy must be a value in: ['spread', 'cluster']"),
        ('"microbatches": 2', '"microbatches": 0', "The number of microbatches must be a positive integer"),
    ],
)
def test_the_sdk_refuses_what_is_wrong(estimator, sdk, right, wrong, said):
    path = estimator("dp=2,tp=8,chunks=2", "tp-cp-ep-dp-pp")
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))
    code, told = sdk(path)
    assert code == 1
    assert said in told
