"""The groups of DeepSpeed's topology classes, as one JSON line for each line {"dp", "pp", "tp"} of stdin."""

import json
import sys

from deepspeed.runtime.pipe.topology import PipeDataParallelTopology, PipeModelDataParallelTopology

AXES = {"pp": "pipe", "dp": "data", "tp": "model"}


def groups(dp, pp, tp):
    """Each axis with its groups; DeepSpeed leaves out groups of one."""
    topology = PipeModelDataParallelTopology(pp, tp, dp) if tp > 1 else PipeDataParallelTopology(pp, dp)
    return {ours: topology.get_axis_comm_lists(theirs) for ours, theirs in AXES.items()}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(groups(**json.loads(line))))  # noqa: T201
