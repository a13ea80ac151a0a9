"""One training step of rendered pipeline.py, on the CPU: see stepping.py."""

import copy

import pipeline
import stepping
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss

WIDTH = 8


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
    return {
        "groups": stepping.groups_on(planned, module.AXES),
        "losses": losses,
        "expected": mse_loss(alone(samples[replica]), targets[replica]).item(),
    }


if __name__ == "__main__":
    stepping.step_on_each(pipeline, step)
