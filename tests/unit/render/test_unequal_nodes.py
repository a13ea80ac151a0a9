"""Which targets start a job on nodes with different numbers of GPUs: those that the documentation names."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuops.cli.render import command as render_command
from gpuops.errors import TemplateError
from gpuops.layout import parse_layout
from gpuops.placement import GpuShape, NodeShape, place
from gpuops.render import Job, render, targets

PAGE = Path(__file__).parents[3] / "docs" / "launch.md"
SENTENCE = re.compile(r"clearly cheaper\. (.*?) start jobs on\s+such nodes", re.DOTALL)
LAYOUTS = ("dp=12", "dp=12,zero=2", "dp=6,pp=2,chunks=4", "tp=12")


def node(name, gpus):
    return NodeShape(name, name, tuple(GpuShape(k, "", "", 0, None, 0) for k in range(gpus)), (), None, name)


def renders(target, text):
    order = target.orders[0] if target.orders else "tp-cp-ep-dp-pp"
    try:
        placement = place(parse_layout(text, order), [node("n1", 8), node("n2", 4)], force=True)
        return bool(render(target, placement, Job()))
    except TemplateError:
        return False


@pytest.mark.parametrize("name", targets())
def test_the_page_names_the_targets_that_take_unequal_nodes(name):
    named = re.findall(r"[a-z0-9-]+", SENTENCE.search(PAGE.read_text())[1])
    assert any(renders(targets()[name], text) for text in LAYOUTS) == (name in named)


def test_a_target_that_refuses_unequal_nodes_names_those_that_take_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = str(CliRunner().invoke(render_command, ["-t", "slurm", "a[1-2]:8,b:4", "--", "train.py"]).exception)
    named = re.findall(r"[a-z0-9-]+", refused.partition("targets that start this layout on unequal nodes: ")[2])
    assert {"torchrun", "openmpi", "megatron-lm", "deepspeed"} <= set(named)
    assert not {"slurm", "mpijob", "fairscale"} & set(named)
    for name in named:
        assert renders(targets()[name], "dp=12"), name
