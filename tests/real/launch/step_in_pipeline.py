"""One training step of rendered pipeline.py, on the CPU: every rank writes what it stood in and what came out.

step_in_pipeline.py FOLDER [FILE …]: where rank files go, and modules of other layouts beside the one on the path.
"""

import copy
import importlib.util
import json
import sys
from pathlib import Path

import pipeline
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

WIDTH = 8


def load(path):
    """The module of another layout."""
    spec = importlib.util.spec_from_file_location("other", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(module, planned, layers, sample, target):
    """Train this rank's stage; the losses of the chunks where it is the last one."""
    losses = []
    schedule = module.schedule(layers, planned, torch.device("cpu"), mse_loss)
    stage = planned.get_local_rank("pp")
    inputs = (sample,) if stage == 0 else ()
    outputs = {"target": target, "losses": losses} if stage == module.AXES["pp"] - 1 else {}
    schedule.step(*inputs, **outputs)
    for parameter in layers.parameters():
        dist.all_reduce(parameter.grad, group=planned.get_group("dp"))
        parameter.grad /= module.AXES["dp"]
    return [loss.item() for loss in losses]


def step(module):
    """Step in the pipeline and alone, with the same weights and samples: the gradients have to be the same."""
    planned = module.build("cpu")
    torch.manual_seed(0)
    stages = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh()) for _ in range(module.AXES["pp"])]
    samples, targets = torch.randn(2, module.AXES["dp"], module.BATCH, WIDTH)
    stage, replica = planned.get_local_rank("pp"), planned.get_local_rank("dp")
    mine, alone = copy.deepcopy(stages[stage]), torch.nn.Sequential(*stages)
    losses = train(module, planned, mine, samples[replica], targets[replica])
    mse_loss(alone(samples.flatten(0, 1)), targets.flatten(0, 1)).backward()
    for stepped, parameter in zip(mine.parameters(), stages[stage].parameters(), strict=True):
        torch.testing.assert_close(stepped.grad, parameter.grad)
    groups = {axis: dist.get_process_group_ranks(planned.get_group(axis)) for axis in module.AXES}
    return {"groups": groups, "losses": losses, "expected": mse_loss(alone(samples[replica]), targets[replica]).item()}


def main():
    """Step in the pipeline of every layout."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found = [step(module) for module in (pipeline, *map(load, sys.argv[2:]))]
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
