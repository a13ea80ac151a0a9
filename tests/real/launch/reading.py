"""What the libraries' own readers make of rendered files: one JSON line for a folder and its dp, given as arguments."""

import json
import sys
from pathlib import Path

import deepspeed.comm
from accelerate.commands.config.config_args import load_config_from_file
from deepspeed.inference.config import DeepSpeedInferenceConfig
from deepspeed.launcher.runner import fetch_hostfile
from deepspeed.runtime.config import DeepSpeedConfig


class Replicas:
    """Stands for the process groups that DeepSpeed asks for the number of replicas."""

    def __init__(self, dp):
        self.dp = dp

    def get_data_parallel_world_size(self):
        return self.dp

    def get_tensor_model_parallel_world_size(self):
        return 1


def read(folder, dp):
    """Everything that the readers understood. Without a job of its own DeepSpeed would reckon with one replica."""
    deepspeed.comm.get_rank = lambda: 0
    said = json.loads((folder / "deepspeed" / "ds_config.json").read_text())
    config = DeepSpeedConfig(said, mpu=Replicas(dp))
    inference = DeepSpeedInferenceConfig(**json.loads((folder / "deepspeed-inference" / "inference.json").read_text()))
    accelerate = load_config_from_file(str(next((folder / "accelerate-deepspeed").glob("config*.yaml"))))
    return {
        "hosts": list(fetch_hostfile(str(folder / "deepspeed" / "hostfile")).items()),
        "stage": config.zero_config.stage,
        "batch": config.train_batch_size,
        "not_read": sorted(set(said.get("aio", {})) - set(config.aio_config)),
        "inference": [str(inference.dtype), inference.tensor_parallel.tp_size],
        "processes": accelerate.num_processes,
        "accelerate_stage": accelerate.deepspeed_config["zero_stage"],
    }


if __name__ == "__main__":
    print(json.dumps(read(Path(sys.argv[1]), int(sys.argv[2]))))  # noqa: T201
