"""What every rank of a launched job runs: it asserts that it stands where the plan says, and writes what it found.

dist_check.py --plan FILE --found FOLDER: a placement as JSON with the job's environment, and where rank files go.
Launchers may add arguments of their own.
"""

import argparse
import json
import os
import socket
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh


def stand(plan):
    """Assert host, local rank, GPU and environment of this rank."""
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    seat = {"rank": rank, "node": socket.gethostname(), "local_rank": local_rank, "gpu": int(gpus[local_rank])}
    planned = plan["ranks"][rank]
    assert seat == {key: planned[key] for key in seat}, f"{seat}, and the plan says {planned}"
    assert dist.get_world_size() == len(plan["ranks"])
    for name, value in plan["env"][seat["node"]].items():
        assert os.environ.get(name) == value, f"{name} is {os.environ.get(name)!r}, not {value!r}"
    return seat


def meet(plan, seat):
    """Assert the members of this rank's groups: by torch's own mesh in the plan's order, and by who answers there."""
    axes = [axis for axis in reversed(plan["order"].split("-")) if axis != "ep"]  # torch names the slowest first
    mesh = init_device_mesh("cpu", tuple(len(plan["groups"][axis][0]) for axis in axes), mesh_dim_names=tuple(axes))
    met = {}
    for axis in axes:
        planned = next(group for group in plan["groups"][axis] if seat["rank"] in group)
        answers = [None] * len(planned)
        dist.all_gather_object(answers, seat, group=mesh.get_group(axis))
        met[axis] = [answer["rank"] for answer in answers]
        assert met[axis] == planned == dist.get_process_group_ranks(mesh.get_group(axis)), f"{axis}: {met}"
    return met


def main():
    """Check, and leave what was found in a file of this rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--plan", required=True, type=Path)
    parser.add_argument("--found", required=True, type=Path)
    arguments, _ = parser.parse_known_args()
    plan = json.loads(arguments.plan.read_text())
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    seat = stand(plan)
    groups = meet(plan, seat)
    (arguments.found / f"{seat['rank']}.json").write_text(json.dumps({**seat, "groups": groups}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
