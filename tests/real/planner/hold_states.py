"""Train a step of small layers under HSDP on the CPU, and write how many numbers of each state this rank holds.

SCRIPT MODEL LAYOUT FOLDER: sizes and layout as JSON, and where rank files go; started by torchrun.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main(model, layout, folder):
    """Step once, with Adam, and count."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (layout["copies"], layout["shard"]), mesh_dim_names=("copies", "shard"))
    hidden = model["hidden"]
    layers = torch.nn.Sequential(
        *(
            torch.nn.TransformerEncoderLayer(hidden, model["heads"], model["ffn"], dropout=0.0, batch_first=True)
            for _ in range(model["layers"])
        )
    )
    total = sum(parameter.numel() for parameter in layers.parameters())
    for layer in (*layers, layers):
        fully_shard(layer, mesh=mesh, reshard_after_forward=layout["zero"] == 3)
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
    loss = layers(torch.randn(2, 8, hidden)).square().mean()
    between = sum(weight.numel() for module in layers for weight in local(module.parameters()))
    loss.backward()
    optimizer.step()
    states = [state for each in optimizer.state.values() for state in local((each["exp_avg"], each["exp_avg_sq"]))]
    found = {
        "total": total,
        "between": between,
        "parameters": sum(weight.numel() for weight in local(layers.parameters())),
        "gradients": sum(each.numel() for each in local(weight.grad for weight in layers.parameters())),
        "moments": sum(each.numel() for each in states),
    }
    Path(folder, f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def local(tensors):
    """What this rank has of tensors."""
    return [each.to_local() if hasattr(each, "to_local") else each for each in tensors]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
