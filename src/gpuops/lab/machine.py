"""Machine descriptions: ``machines/NAME.json`` becomes a healthy `Node`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuops.errors import InputError, did_you_mean
from gpuops.lab.model import Cpu, Disk, Driver, GpuModel, Nic, Node, Service, Switches, System, resting

FOLDER = Path(__file__).with_name("machines")


def names() -> list[str]:
    """The machines that a lab can be made of."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@functools.cache
def healthy(name: str) -> Node:
    """A healthy node of machine ``name``, or `InputError` naming the nearest one."""
    if name not in names():
        hint = did_you_mean(name, names()) or f"; known: {', '.join(names())}"
        raise InputError(f'the lab has no machine called "{name}"{hint}')
    text = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return _node(name, text)


def _node(name: str, text: Mapping[str, Any]) -> Node:
    model = _gpu_model(text["gpu"])
    driver = text["driver"]
    version = driver["version"]
    switches = text.get("nvswitches")
    return Node(
        machine=name,
        system=System(**text["system"]),
        cpu=Cpu(text["cpu"]["model"], tuple(text["cpu"]["nodes"])),
        driver=Driver(
            version=version,
            userspace=version,
            fabric_manager=version if driver["fabric_manager"] else None,
            cuda=driver["cuda"],
            open=driver["open"],
            persistence=driver["persistence"],
        ),
        gpus=tuple(resting(index, path, model) for index, path in enumerate(text["gpus"])),
        nics=tuple(Nic(**nic) for nic in text["nics"]),
        host_bridges=text["host_bridges"],
        disks=tuple(Disk(**disk) for disk in text["disks"]),
        services={unit: Service() for unit in text["services"]},
        packages=text["packages"],
        offered={name: tuple(versions) for name, versions in text.get("offered", {}).items()},
        sysctls={"kernel.numa_balancing": "0", "net.core.somaxconn": "4096", "vm.swappiness": "60"},
        switches=Switches(switches["pci_name"], switches["device"], tuple(switches["at"])) if switches else None,
    )


def _gpu_model(text: Mapping[str, Any]) -> GpuModel:
    companions = tuple(tuple(c) for c in text.get("companions", ()))
    return GpuModel(**{**text, "inforom": tuple(text["inforom"]), "companions": companions})
