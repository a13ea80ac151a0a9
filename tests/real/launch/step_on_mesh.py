"""One training step of rendered mesh.py, on the CPU: see stepping.py."""

import copy

import mesh
import stepping
import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WIDTH = 8


def held(parameter):
    """How many numbers of a parameter this rank holds."""
    return (parameter.to_local() if isinstance(parameter, DTensor) else parameter).numel()


def train(model, samples, targets):
    """Step once over micro-batches; the loss, and what is held of the first layer between forward and backward."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = 0.0
    for sample, target in zip(samples, targets, strict=True):
        part = torch.nn.functional.mse_loss(model(sample), target) / len(samples)
        between = held(model[0].weight)
        part.backward()
        loss += part.item()
    optimizer.step()
    return loss, between


def step(module):
    """Step on the mesh and alone, with the same weights and samples: both have to end in the same weights."""
    planned = module.build("cpu")
    torch.manual_seed(0)
    alone = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Tanh(), torch.nn.Linear(4 * WIDTH, WIDTH))
    samples, targets = torch.randn(2, planned["dp"].size(), module.CHUNKS, module.MICRO_BATCH, WIDTH)
    model = parallelize_module(copy.deepcopy(alone), planned["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    module.shard(model, [model[0]], planned)

    replica = planned["dp"].get_local_rank()
    loss, between = train(model, samples[replica], targets[replica])
    expected, whole = train(alone, samples.flatten(0, 1), targets.flatten(0, 1))
    for stepped, parameter in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(stepped.full_tensor(), parameter)
    return {
        "groups": stepping.groups_on(planned, module.AXES),
        "loss": loss,
        "expected": expected,
        "held": between / whole,
    }


if __name__ == "__main__":
    stepping.step_on_each(mesh, step)
