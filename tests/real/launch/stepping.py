"""Steps of training on rendered modules, on the CPU; every rank writes what it stood in and what came out.

SCRIPT FOLDER [FILE …]: where rank files go, and modules of other layouts beside the one that is on the path.
"""

import importlib.util
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def load(path):
    """The module of another layout."""
    spec = importlib.util.spec_from_file_location("other", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def step_on_each(module, step):
    """Meet, and take ``step`` on ``module`` and on those of the other layouts."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = [step(each) for each in (module, *map(load, sys.argv[2:]))]
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def groups_on(mesh, axes):
    """The ranks that this one shares each axis of a mesh with."""
    return {axis: dist.get_process_group_ranks(mesh.get_group(axis)) for axis in axes}
