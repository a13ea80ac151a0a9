"""Accelerate hands Megatron-LM the layout that was rendered, and Megatron-FSDP has a mesh for what is rendered."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuops.errors import TemplateError
from gpuops.layout import parse_layout
from gpuops.placement import place
from gpuops.render import Job, find_target, render, write

ACCELERATE = [
    "dp=8,mbs=2,recompute=full",
    "dp=2,pp=2,tp=2,mbs=2,chunks=8,zero=1,sp=true,recompute=full",
    "dp=4,tp=2,ep=4,mbs=2,zero=1,sp=true,offload=cpu,recompute=full",
]
FSDP = ["dp=8", "dp=4,tp=2", "dp=2,cp=2,tp=2", "dp=4,tp=2,ep=4,sp=true", "dp=4,pp=2,chunks=2", "dp=2,pp=2,tp=2"]


@pytest.fixture
def placed(node):
    return lambda layout: place(layout, [node("n1", 8)])


def ask(library, questions):
    if not all(map(importlib.util.find_spec, (library, "torch"))):
        pytest.skip(f"there is no {library} here, which is of the extra gpuops[launch]")
    script = Path(__file__).with_name("megatron_reading.py")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, "accelerate" if library == "accelerate" else "fsdp"],
        input="\n".join(questions),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_accelerate_tells_megatron_the_layout(tmp_path, placed):
    layouts = [parse_layout(words) for words in ACCELERATE]
    for index, layout in enumerate(layouts):
        write(render(find_target("accelerate-megatron"), placed(layout), Job()), tmp_path / str(index))
    answers = ask("accelerate", [str(tmp_path / str(index) / "config-n1.yaml") for index in range(len(layouts))])
    for layout, told in zip(layouts, answers, strict=True):
        expected = {
            "tensor_model_parallel_size": layout.tp,
            "pipeline_model_parallel_size": layout.pp,
            "context_parallel_size": 1,
            "expert_model_parallel_size": layout.ep,
            "expert_tensor_parallel_size": layout.tp,
            "num_layers_per_virtual_pipeline_stage": None,
            "sequence_parallel": layout.sequence_parallel,
            "use_distributed_optimizer": layout.zero == 1,
            "optimizer_cpu_offload": layout.offload == "cpu",
            "use_precision_aware_optimizer": layout.offload == "cpu",
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
            "calculate_per_token_loss": False,
            "micro_batch_size": layout.mbs,
            "data_parallel_size": layout.dp,
            "global_batch_size": layout.global_batch,
            "bf16": True,
        }
        assert {name: told[name] for name in expected} == expected


def test_megatron_fsdp_has_a_mesh_where_we_render_it(placed):
    layouts = [parse_layout(f"{words},zero={zero}") for words in FSDP for zero in (2, 3)]
    rendered = []
    for layout in layouts:
        try:
            rendered.append(bool(render(find_target("megatron-lm"), placed(layout), Job())))
        except TemplateError:
            rendered.append(False)
    assert rendered == ask("megatron", [json.dumps(vars(layout)) for layout in layouts])
    assert set(rendered) == {True, False}
