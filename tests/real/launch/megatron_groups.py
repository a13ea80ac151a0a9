"""The groups that megatron-core makes for layouts, as one JSON line for each; in a process of its own, as its import
takes seconds and warns.

megatron_groups.py: lines of JSON on stdin, {"tp", "cp", "ep", "dp", "pp", "order", "ranks": whose groups to make}.
"""

import json
import sys

import torch.distributed as dist
from megatron.core import parallel_state
from torch.testing._internal.distributed.fake_pg import FakeStore

GROUPS = {
    "tp": parallel_state.get_tensor_model_parallel_group,
    "cp": parallel_state.get_context_parallel_group,
    "ep": parallel_state.get_expert_model_parallel_group,
    "dp": parallel_state.get_data_parallel_group,
    "pp": parallel_state.get_pipeline_model_parallel_group,
}


def joined(rank, world, layout):
    """The groups that ``rank`` is in when megatron-core has set itself up, in a world of which only it exists."""
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout["tp"],
        pipeline_model_parallel_size=layout["pp"],
        context_parallel_size=layout["cp"],
        expert_model_parallel_size=layout["ep"],
        order=layout["order"],
        create_gloo_process_groups=False,
    )
    groups = {axis: dist.get_process_group_ranks(group()) for axis, group in GROUPS.items()}
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
    return groups


def generated(layout):
    """All groups by RankGenerator, which is arithmetic alone; it knows no ep beside cp."""
    sizes = {axis: layout[axis] for axis in ("tp", "pp", "dp", "cp")}
    generator = parallel_state.RankGenerator(**sizes, ep=1, order=layout["order"])
    return {axis: generator.get_ranks(axis) for axis in sizes}


def main():
    """One line for each layout."""
    for line in sys.stdin:
        layout = json.loads(line)
        world = layout["tp"] * layout["cp"] * layout["dp"] * layout["pp"]
        groups = {rank: joined(rank, world, layout) for rank in layout["ranks"]}
        print(json.dumps({"joined": groups, "generated": generated(layout)}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
