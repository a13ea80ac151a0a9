"""What Accelerate tells Megatron-LM after it has read a rendered configuration, and which layouts Megatron-FSDP has a
mesh for; in a process of its own, as the imports take seconds and warn.

megatron_reading.py accelerate: one JSON line, the configuration files on stdin, one a line.
megatron_reading.py fsdp: one JSON line, layouts on stdin, one JSON object a line, of which the last rank is asked.
"""

import json
import os
import sys


def accelerate(lines):
    """Megatron-LM's arguments as Accelerate's launcher and plugin would set them for each configuration."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils import MegatronLMPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    for line in lines:
        words = ["--config_file", line.strip(), "train.py"]
        args, _, _ = _validate_launch_command(launch_command_parser().parse_args(words))
        os.environ.update(prepare_multi_gpu_env(args))
        plugin = MegatronLMPlugin()
        plugin.set_mixed_precision(args.mixed_precision)
        replicas = args.num_processes // (plugin.tp_degree * plugin.pp_degree)  # Accelerator._prepare_megatron_lm
        plugin.set_training_args(micro_batch_size=2, dp_degree=replicas)
        yield plugin.megatron_lm_default_args


def fsdp(lines):
    """Whether Megatron-FSDP can lay its meshes over the groups of each layout."""
    import torch.distributed as dist
    from einops import EinopsError
    from megatron.core import parallel_state
    from megatron.core.distributed.fsdp.mcore_fsdp_adapter import _get_dp_tp_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    for line in lines:
        layout = json.loads(line)
        world = layout["tp"] * layout["cp"] * layout["dp"] * layout["pp"]
        dist.init_process_group("fake", rank=world - 1, world_size=world, store=FakeStore())
        parallel_state.initialize_model_parallel(
            layout["tp"],
            layout["pp"],
            context_parallel_size=layout["cp"],
            expert_model_parallel_size=layout["ep"],
            create_gloo_process_groups=False,
        )
        experts = parallel_state.get_expert_data_parallel_group(), parallel_state.get_expert_tensor_parallel_group()
        data = parallel_state.get_data_parallel_group(with_context_parallel=True)
        try:
            _get_dp_tp_mesh(*experts, ep_size=layout["ep"])
            _get_dp_tp_mesh(data, parallel_state.get_tensor_model_parallel_group())
            yield True
        except (EinopsError, AssertionError):
            yield False
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


if __name__ == "__main__":
    answers = list({"accelerate": accelerate, "fsdp": fsdp}[sys.argv[1]](sys.stdin))
    print(json.dumps(answers, default=str))  # noqa: T201
