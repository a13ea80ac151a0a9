"""Machine descriptions: ``machines/NAME.json`` becomes a healthy `Node`."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuops.errors import InputError, did_you_mean
from gpuops.lab.model import (
    Bmc,
    Cpu,
    Disk,
    Drive,
    Driver,
    GpuModel,
    Mirror,
    Nic,
    Node,
    Rack,
    Service,
    Switches,
    System,
    resting,
)
from gpuops.lab.tools.repositories import offered

FOLDER = Path(__file__).with_name("machines")
_SYSCTLS = {
    "kernel.numa_balancing": "0",
    "net.core.somaxconn": "4096",
    "net.ipv4.neigh.default.gc_thresh1": "128",
    "net.ipv4.neigh.default.gc_thresh2": "512",
    "net.ipv4.neigh.default.gc_thresh3": "1024",
    "vm.max_map_count": "65530",
    "vm.swappiness": "60",
}


def names() -> list[str]:
    """Return the machines that a lab can simulate."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


@functools.cache
def healthy(name: str) -> Node:
    """Return a healthy node of machine ``name``; raise `InputError` with the nearest name."""
    if name not in names():
        hint = did_you_mean(name, names()) or f"; known: {', '.join(names())}"
        raise InputError(f'no machine named "{name}"{hint}')
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
        offered=_offered(text.get("offered", {}), text["system"]["kernel"]),
        sysctls=_SYSCTLS,
        power=text.get("power", {}),
        drives=tuple(Drive(f"nvme{n}") for n in range(1 if "power" in text else 10)),
        mirrors=() if "power" in text else (Mirror("md0", ("nvme0n1", "nvme1n1")),),
        bmc=None if "power" in text else Bmc(**text.get("bmc", {})),
        nvlink_mesh=tuple(map(tuple, text.get("nvlink_mesh", ()))),
        rack=Rack(**text["rack"]) if "rack" in text else None,
        switches=Switches(switches["pci_name"], switches["device"], tuple(switches["at"])) if switches else None,
    )


def _offered(own: Mapping[str, list[str]], kernel: str) -> dict[str, tuple[str, ...]]:
    """Return every version of each package, oldest first: the machine's ``own``, and those offered to all machines."""
    versions = {name: set(choices) for name, choices in own.items()}
    for name, version in offered(kernel):
        versions.setdefault(name, set()).add(version)
    return {name: tuple(sorted(choices, key=_numbers)) for name, choices in versions.items()}


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _gpu_model(text: Mapping[str, Any]) -> GpuModel:
    tuples = {name: tuple(text[name]) for name in ("inforom", "module_watts", "module_ids") if name in text}
    companions = tuple(tuple(c) for c in text.get("companions", ()))
    return GpuModel(**{**text, **tuples, "companions": companions})
