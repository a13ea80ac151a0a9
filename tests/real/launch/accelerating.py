"""What Accelerate makes of launch files: every rank leaves it as JSON in the folder that is given as argument."""

import json
import os
import sys
from pathlib import Path

import torch.distributed as dist
from accelerate import Accelerator, DeepSpeedPlugin, PartialState
from accelerate.utils import DistributedType


def meet():
    """The job over gloo; Accelerate is told that there are GPUs, for on CPUs it looks at no sharding."""
    PartialState(backend="gloo")
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    return Accelerator()


def sharding(accelerator):
    """What FSDP is told, and this rank's groups by axis."""
    plugin, mesh = accelerator.state.fsdp_plugin, accelerator.torch_device_mesh
    axes = mesh.mesh_dim_names if mesh else ()
    return {
        "version": plugin.fsdp_version,
        "reshard": plugin.reshard_after_forward,
        "offload": type(plugin.cpu_offload).__name__,
        "recompute": plugin.activation_checkpointing,
        "groups": {axis: dist.get_process_group_ranks(mesh.get_group(axis)) for axis in axes},
    }


def deepspeed():
    """DeepSpeed's configuration as Accelerator() would make it; its communication wants a compiler on CPUs."""
    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision(os.environ["ACCELERATE_MIXED_PRECISION"])
    return plugin.deepspeed_config


def understood():
    """The job as Accelerate's own objects hold it."""
    found = {"node": int(os.environ["GROUP_RANK"]), "local_rank": int(os.environ["LOCAL_RANK"])}
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        return {**found, "ranks": int(os.environ["WORLD_SIZE"]), "deepspeed": deepspeed()}
    accelerator = meet()
    found |= {"ranks": accelerator.num_processes, "chunks": accelerator.gradient_accumulation_steps}
    fsdp = accelerator.distributed_type == DistributedType.FSDP
    return {**found, "fsdp": sharding(accelerator)} if fsdp else found


if __name__ == "__main__":
    Path(sys.argv[1], os.environ["RANK"] + ".json").write_text(json.dumps(understood()))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
