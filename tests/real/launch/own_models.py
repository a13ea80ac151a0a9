"""Reads rendered files with their consumer's own code, and prints what it understood. own_models.py NAME DIR."""

import json
import sys
from pathlib import Path


def skypilot(folder):
    """The task, as ``sky launch`` reads it."""
    import sky

    task = sky.Task.from_yaml(str(folder / "task.yaml"))
    (resources,) = task.resources
    return {
        "nodes": task.num_nodes,
        "accelerators": resources.accelerators,
        "cloud": str(resources.cloud),
        "env": task.envs,
        "run": task.run,
    }


def dstack(folder):
    """The task and the fleet, as ``dstack apply`` reads them."""
    import yaml
    from dstack._internal.core.models.configurations import parse_apply_configuration

    task, fleet = (
        parse_apply_configuration(yaml.safe_load((folder / f"{name}.dstack.yml").read_text()))
        for name in ("train", "fleet")
    )
    return {
        "nodes": task.nodes,
        "gpus": task.resources.gpu.count.min,
        "mounts": [[mount.instance_path, mount.path] for mount in task.volumes],
        "env": task.env.as_dict(),
        "run": "\n".join(task.commands),
        "hosts": list(fleet.ssh_config.hosts),
        "placement": fleet.placement.value,
    }


def lightning(folder):
    """The Trainer's arguments, as a LightningCLI reads and checks them."""
    from lightning.pytorch.cli import LightningCLI
    from lightning.pytorch.demos.boring_classes import BoringDataModule, DemoModel

    class Reader(LightningCLI):
        def instantiate_classes(self):
            """Build nothing: the strategies want GPUs."""

    words = ["--config", str(folder / "trainer.yaml")]
    reader = Reader(DemoModel, BoringDataModule, run=False, save_config_callback=None, args=words)
    trainer, strategy = reader.config.trainer, reader.config.trainer.strategy
    if not isinstance(strategy, str):
        strategy = [
            strategy.class_path.rpartition(".")[2],
            {name: getattr(value, "name", value) for name, value in strategy.init_args.as_dict().items()},
        ]
    return {"devices": trainer.devices, "nodes": trainer.num_nodes, "strategy": strategy}


def main(name, folder):
    """Print what ``name`` reads in ``folder``."""
    told = {"skypilot": skypilot, "dstack": dstack, "lightning": lightning}[name](Path(folder))
    sys.stdout.write(json.dumps(told, default=str) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
